package main

import "bytes"

// Every contender sends rows that hold their number, counted per key, and then, in some, the time of their event in ns
// since 1970: …"n":17,"t":1790000000000000000,… So one reader serves all protocols, and finds what was left out.
var (
	numberMark = []byte(`"n":`)
	timeMark   = []byte(`,"t":`)
)

// scan calls row for each row in data and returns how many bytes it is done with. The rest may be the beginning of a
// row's numbers and has to come again, with what follows it.
func scan(data []byte, row func(number, at int64)) int {
	done := 0
	for {
		found := bytes.Index(data[done:], numberMark)
		if found < 0 {
			if keep := len(numberMark) - 1; len(data)-done > keep {
				return len(data) - keep
			}
			return done
		}
		start := done + found
		number, end := digits(data, start+len(numberMark))
		if end+len(timeMark) > len(data) {
			return start
		}
		var at int64
		if bytes.Equal(data[end:end+len(timeMark)], timeMark) {
			if at, end = digits(data, end+len(timeMark)); end == len(data) {
				return start
			}
		}
		row(number, at)
		done = end
	}
}

// digits reads a number and returns where it ends.
func digits(data []byte, at int) (int64, int) {
	var value int64
	for at < len(data) && data[at] >= '0' && data[at] <= '9' {
		value = value*10 + int64(data[at]-'0')
		at++
	}
	return value, at
}

// messages passes the payload of each whole text message to text, and that of each ping to ping, and returns how many
// bytes it is done with. Servers neither mask nor, here, split their messages.
func messages(data []byte, text, ping func(payload []byte)) int {
	done := 0
	for len(data)-done >= 2 {
		head := data[done:]
		size, from := int(head[1]), 2
		if size == 126 {
			if from = 4; len(head) < from {
				break
			}
			size = int(head[2])<<8 | int(head[3])
		} else if size == 127 {
			if from = 10; len(head) < from {
				break
			}
			size = 0
			for _, b := range head[2:10] {
				size = size<<8 | int(b)
			}
		}
		if len(head) < from+size {
			break
		}
		switch head[0] & 0x0f {
		case 1, 2:
			text(head[from : from+size])
		case 9:
			ping(head[from : from+size])
		}
		done += from + size
	}
	return done
}

// masked is a client's message; a mask of zeroes changes nothing and is as good as any on this machine.
func masked(code byte, payload []byte) []byte {
	size := len(payload)
	out := []byte{0x80 | code}
	if size < 126 {
		out = append(out, 0x80|byte(size))
	} else {
		out = append(out, 0x80|126, byte(size>>8), byte(size))
	}
	return append(append(out, 0, 0, 0, 0), payload...)
}
