// Command fanout is many clients in one thread: it connects, counts the rows that arrive and measures their delay.
//
// It reads sockets with epoll and looks at the rows' numbers only, so that servers are the limit and not the clients;
// that it is fast enough shows in what it counts from a plain send loop. Connection number i asks for key i % keys.
//
// It prints `connected` and takes a command a line from standard input: `begin` and `timed` start to count anew, the
// second with delays; `end` prints a line of JSON. It ends with its standard input. What has arrived is in the shared
// file, too: the sum of the rows' numbers over all connections, so that a publisher can keep so many rows under way.
package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

type connection struct {
	fd      int
	sealed  *sealed // nil without TLS
	key     int
	live    bool
	talking bool
	last    int64
	begun   int64
	kept    []byte
}

type clients struct {
	all       []*connection // by descriptor; nil where it is not a connection's
	epoll     int
	websocket bool
	ready     []byte
	first     string
	live      int
	lost      int
	rows      int64
	counting  bool
	timed     bool
	delays    Delays
	progress  *uint64
	buffer    []byte
	ciphers   []byte // what a read brings under TLS
	trusted   *tls.Config
}

// Read at most so much at once; what is kept of the read before lies in front of it.
const (
	room     = 256 << 10
	keptRoom = 128 << 10
	// The beginning of a TLS record may lie in front of what a read brings.
	recordRoom = 20 << 10
	patience   = 60 * time.Second
	nap        = 200 * time.Microsecond
)

func main() {
	address := flag.String("address", "127.0.0.1:80", "IP address and port of the server")
	count := flag.Int("connections", 1, "how many connections")
	keys := flag.Int("keys", 1, "how many keys they share")
	request := flag.String("request", "", "file with the request that opens a connection; {key} becomes the key's number")
	first := flag.String("first", "", "the first message on a WebSocket; {key} becomes the key's number")
	ready := flag.String("ready", "", "text that says that a connection gets every row from now on")
	websocket := flag.Bool("websocket", false, "read WebSocket messages")
	authority := flag.String("trust", "", "speak TLS, and trust the authority whose certificate is in this file")
	shared := flag.String("shared", "", "file of 8 bytes: the sum of the numbers of all connections' last rows")
	flag.Parse()
	text, err := os.ReadFile(*request)
	check(err)
	epoll, err := syscall.EpollCreate1(0)
	check(err)
	c := &clients{
		all: make([]*connection, *count+1000), epoll: epoll, websocket: *websocket, ready: []byte(*ready), first: *first,
		progress: mapped(*shared), buffer: make([]byte, keptRoom+room),
	}
	if *authority != "" {
		host, _, _ := strings.Cut(*address, ":")
		c.trusted, c.ciphers = trusting(*authority, host), make([]byte, room-recordRoom)
	}
	c.connect(*address, *count, *keys, string(text))
	fmt.Println("connected")
	check(syscall.EpollCtl(epoll, syscall.EPOLL_CTL_ADD, 0, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: 0}))
	for c.step(c.patience()) {
	}
}

// patience is how long to wait for something to read. Where delays are measured, sleep until it comes. Elsewhere look
// for it now and then: a server must not pay for waking us, as it would not for clients on other machines.
func (c *clients) patience() int {
	if c.timed || !c.counting {
		return -1
	}
	return 0
}

// connect opens all connections, a hundred under way at a time, and returns when all are live.
func (c *clients) connect(address string, count, keys int, request string) {
	host, port, _ := strings.Cut(address, ":")
	number, err := strconv.Atoi(port)
	check(err)
	to := &syscall.SockaddrInet4{Port: number}
	for n, part := range strings.SplitN(host, ".", 4) {
		value, err := strconv.Atoi(part)
		check(err)
		to.Addr[n] = byte(value)
	}
	deadline := time.Now().Add(patience)
	for opened := 0; c.live < count; {
		for ; opened < count && opened-c.live < 100; opened++ {
			fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			check(err)
			check(syscall.Connect(fd, to))
			one := &connection{fd: fd, key: opened % keys}
			if c.trusted != nil {
				one.sealed = shake(fd, c.trusted)
			}
			check(syscall.SetNonblock(fd, true))
			c.all[fd] = one
			one.write([]byte(named(request, one.key)))
			event := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)}
			check(syscall.EpollCtl(c.epoll, syscall.EPOLL_CTL_ADD, fd, &event))
		}
		c.step(1000)
		if c.lost > 0 || time.Now().After(deadline) {
			fail(fmt.Sprintf("%d of %d connections are live, %d were closed", c.live, count, c.lost))
		}
	}
}

// step reads what has arrived within so many ms; false at the end of standard input.
func (c *clients) step(timeout int) bool {
	var events [512]syscall.EpollEvent
	found, err := syscall.EpollWait(c.epoll, events[:], timeout)
	if err != nil && err != syscall.EINTR {
		check(err)
	}
	if found <= 0 && timeout == 0 {
		_ = syscall.Nanosleep(&syscall.Timespec{Nsec: int64(nap)}, nil)
	}
	for n := 0; n < found; n++ {
		if events[n].Fd == 0 {
			if !c.command() {
				return false
			}
			continue
		}
		c.read(c.all[events[n].Fd])
	}
	return true
}

func (c *clients) read(one *connection) {
	before := len(one.kept)
	copy(c.buffer, one.kept)
	into := c.buffer[before : before+room]
	if one.sealed != nil {
		into = c.ciphers
	}
	size, err := syscall.Read(one.fd, into)
	if err == syscall.EAGAIN || err == syscall.EINTR {
		return
	}
	ended := size <= 0
	if !ended && one.sealed != nil {
		size, ended = one.sealed.open(into[:size], c.buffer[before:before+room])
		// What came before the end still counts. The next read finds the end again.
		ended = ended && size == 0
	}
	if ended {
		c.lost++
		syscall.Close(one.fd)
		return
	}
	data := c.buffer[:before+size]
	if !one.live {
		data = c.open(one, data)
	}
	done := c.take(one, data)
	if len(data)-done > keptRoom {
		fail("a message is longer than fits")
	}
	one.kept = append(one.kept[:0], data[done:]...)
}

// open follows a connection until it is live; what it returns is left to be taken.
func (c *clients) open(one *connection, data []byte) []byte {
	if !one.talking {
		end := bytes.Index(data, []byte("\r\n\r\n"))
		if end < 0 {
			return data
		}
		if status := string(data[:min(len(data), 13)]); !strings.HasPrefix(status, "HTTP/1.1 200 ") && !strings.HasPrefix(status, "HTTP/1.1 101 ") {
			fail("expected 200 or 101, got " + string(data[:min(len(data), 500)]))
		}
		one.talking = true
		if c.first != "" {
			one.write(masked(1, []byte(named(c.first, one.key))))
		}
		if len(c.ready) == 0 {
			one.live = true
			c.live++
		}
		data = data[end+4:]
	}
	if !one.live && bytes.Contains(data, c.ready) {
		one.live = true
		c.live++
	}
	return data
}

func (c *clients) take(one *connection, data []byte) int {
	if !one.talking || !one.live {
		return 0
	}
	var now int64
	if c.timed {
		now = time.Now().UnixNano()
	}
	last := one.last
	row := func(number, at int64) {
		if number > one.last {
			c.rows++
			one.last = number
		}
		if now > 0 && at > 0 {
			c.delays.add(now - at)
		}
	}
	var done int
	if c.websocket {
		text := func(payload []byte) { scan(payload, row) }
		done = messages(data, text, func(payload []byte) { one.write(masked(10, payload)) })
	} else {
		done = scan(data, row)
	}
	atomic.AddUint64(c.progress, uint64(one.last-last))
	return done
}

type report struct {
	Rows    int64       `json:"rows"`
	Skipped int64       `json:"skipped"`
	Lost    int         `json:"lost"`
	Delays  [][2]uint64 `json:"delays"`
}

func (c *clients) command() bool {
	var line [256]byte
	size, err := syscall.Read(0, line[:])
	if size <= 0 || err != nil {
		return false
	}
	switch command := strings.TrimSpace(string(line[:size])); command {
	case "begin", "timed":
		c.rows, c.counting, c.timed = 0, true, command == "timed"
		c.delays.clear()
		for _, one := range c.all {
			if one != nil {
				one.begun = one.last
			}
		}
		fmt.Println("begun")
	case "end":
		c.counting = false
		found := report{Rows: c.rows, Lost: c.lost, Delays: c.delays.found()}
		for _, one := range c.all {
			if one != nil {
				found.Skipped += one.last - one.begun
			}
		}
		found.Skipped -= c.rows
		check(json.NewEncoder(os.Stdout).Encode(found))
	default:
		fail("expected begin, timed or end, got " + command)
	}
	return true
}

func (one *connection) write(data []byte) {
	if one.sealed == nil {
		write(one.fd, data)
		return
	}
	// As without TLS, what is wrong with a connection shows where it is read.
	_, _ = one.sealed.tls.Write(data)
}

func named(text string, key int) string { return strings.ReplaceAll(text, "{key}", strconv.Itoa(key)) }

func write(fd int, data []byte) {
	for len(data) > 0 {
		size, err := syscall.Write(fd, data)
		if err == syscall.EINTR || err == syscall.EAGAIN {
			continue
		}
		if err != nil {
			return
		}
		data = data[size:]
	}
}

func mapped(name string) *uint64 {
	if name == "" {
		return new(uint64)
	}
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	check(err)
	data, err := syscall.Mmap(int(file.Fd()), 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	check(err)
	return (*uint64)(unsafe.Pointer(&data[0]))
}

func check(err error) {
	if err != nil {
		fail(err.Error())
	}
}

func fail(text string) {
	fmt.Fprintln(os.Stderr, "fanout: "+text)
	os.Exit(1)
}
