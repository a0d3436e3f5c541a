package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"time"

	"github.com/tierlimit/tierlimit/limit"
)

// subject is a way of limiting: this library, or one of the common ways.
type subject uint8

const (
	ours   subject = iota
	naive          // the full limit on each instance
	static         // 1/fleet on each instance, fresh at the cut
	subjects
)

// bare is no limiter: a Get of ristretto and a look at the clock, called like the others. It shows the machine's own
// part of a latency.
const bare = subjects

func (s subject) String() string {
	return [...]string{"tierlimit", "full limit each", "1/fleet each"}[s]
}

// call is one decision in a worker's log.
type call struct {
	at       int64 // when the call returned, µs on the clock that all processes share
	key      uint32
	took     time.Duration
	tier     limit.Tier
	by       subject
	allowed  bool
	degraded bool // Redis counted as lost when the call began
	instance int
}

const (
	callBytes = 16
	tookUnit  = 100 * time.Nanosecond
	tookMost  = 1<<24 - 1

	// The lowest bits of the flags are the tier.
	tierBits    = 3
	subjectBits = 2
	flagAllowed = 1 << (tierBits + subjectBits)
	flagLost    = flagAllowed << 1
)

func (c call) encode() (b [callBytes]byte) {
	binary.LittleEndian.PutUint64(b[:], uint64(c.at))
	binary.LittleEndian.PutUint32(b[8:], c.key)
	flags := byte(c.tier) | byte(c.by)<<tierBits
	if c.allowed {
		flags |= flagAllowed
	}
	if c.degraded {
		flags |= flagLost
	}
	binary.LittleEndian.PutUint32(b[12:], uint32(min(int64(c.took/tookUnit), tookMost))<<8|uint32(flags))
	return b
}

func decodeCall(b []byte, instance int) call {
	last := binary.LittleEndian.Uint32(b[12:])
	return call{
		at:       int64(binary.LittleEndian.Uint64(b)),
		key:      binary.LittleEndian.Uint32(b[8:]),
		took:     time.Duration(last>>8) * tookUnit,
		tier:     limit.Tier(last & (1<<tierBits - 1)),
		by:       subject(last >> tierBits & (1<<subjectBits - 1)),
		allowed:  last&flagAllowed != 0,
		degraded: last&flagLost != 0,
		instance: instance,
	}
}

func readCalls(path string, instance int) (calls []call, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	in := bufio.NewReader(file)
	var b [callBytes]byte
	for {
		switch _, err := io.ReadFull(in, b[:]); {
		case errors.Is(err, io.EOF):
			return calls, nil
		case err != nil:
			return nil, err
		}
		calls = append(calls, decodeCall(b[:], instance))
	}
}
