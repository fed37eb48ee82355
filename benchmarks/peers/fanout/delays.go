package main

import "math/bits"

// Delays counts times in ns in buckets that are at most 1/64 wide of what they hold.
type Delays struct {
	counts [64 * 64]uint64
}

const fine = 6

func (d *Delays) add(ns int64) {
	if ns < 0 {
		ns = 0
	}
	d.counts[bucket(uint64(ns))]++
}

// found lists the buckets that hold something: the largest time that falls into it, and how many did.
func (d *Delays) found() [][2]uint64 {
	list := [][2]uint64{}
	for n, count := range d.counts {
		if count > 0 {
			list = append(list, [2]uint64{top(n), count})
		}
	}
	return list
}

func (d *Delays) clear() { d.counts = [64 * 64]uint64{} }

// bucket numbers times below 64 by themselves; above, by their highest bit and the six bits after it.
func bucket(ns uint64) int {
	if ns < 1<<fine {
		return int(ns)
	}
	shift := bits.Len64(ns) - fine - 1
	return (shift+1)<<fine + int(ns>>shift) - 1<<fine
}

func top(n int) uint64 {
	if n < 1<<fine {
		return uint64(n)
	}
	shift := n>>fine - 1
	return (uint64(n&(1<<fine-1))+1<<fine+1)<<shift - 1
}
