package main

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"syscall"
	"time"
)

// sealed is TLS on a connection whose bytes are read and written here: what one read brings is decrypted in one go.
type sealed struct {
	fd      int
	tls     *tls.Conn
	waiting bool   // whether to wait for bytes, as in the handshake
	arrived []byte // read, and not decrypted yet
}

// notYet is what TLS is told where nothing more has arrived. It goes on from there when it is asked again.
type notYet struct{}

func (notYet) Error() string   { return "nothing more has arrived" }
func (notYet) Timeout() bool   { return true }
func (notYet) Temporary() bool { return true }

// trusting is what all connections have in common: they trust the authority of a file, by which the server has to show
// that it is this host.
func trusting(file, host string) *tls.Config {
	text, err := os.ReadFile(file)
	check(err)
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(text) {
		fail("expected a certificate in " + file)
	}
	return &tls.Config{RootCAs: authorities, ServerName: host, MinVersion: tls.VersionTLS12}
}

// shake begins TLS on a connection, and waits for the server's part in it.
func shake(fd int, config *tls.Config) *sealed {
	s := &sealed{fd: fd, waiting: true}
	s.tls = tls.Client(s, config)
	check(s.tls.Handshake())
	s.waiting = false
	return s
}

// open decrypts what has arrived, as far as it is whole; true if the server has ended the connection.
func (s *sealed) open(arrived, out []byte) (int, bool) {
	s.arrived = arrived
	for size := 0; ; {
		more, err := s.tls.Read(out[size:])
		size += more
		if err == (notYet{}) {
			return size, false
		}
		if err != nil {
			return size, true
		}
	}
}

func (s *sealed) Read(into []byte) (int, error) {
	if s.waiting {
		size, err := syscall.Read(s.fd, into)
		if err == nil && size == 0 {
			return 0, net.ErrClosed
		}
		return size, err
	}
	if len(s.arrived) == 0 {
		return 0, notYet{}
	}
	size := copy(into, s.arrived)
	s.arrived = s.arrived[size:]
	return size, nil
}

func (s *sealed) Write(data []byte) (int, error) {
	write(s.fd, data)
	return len(data), nil
}

func (s *sealed) Close() error                     { return nil }
func (s *sealed) LocalAddr() net.Addr              { return nil }
func (s *sealed) RemoteAddr() net.Addr             { return nil }
func (s *sealed) SetDeadline(time.Time) error      { return nil }
func (s *sealed) SetReadDeadline(time.Time) error  { return nil }
func (s *sealed) SetWriteDeadline(time.Time) error { return nil }
