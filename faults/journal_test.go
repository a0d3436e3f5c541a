//go:build unix

package faults

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
)

// event is something that a holder did. It is a line of the holder's journal.
type event struct {
	What  what   `json:"e"`
	ID    int64  `json:"i,omitempty"` // ID of the slot or hold, among the holder's
	Rule  string `json:"r,omitempty"`
	Key   string `json:"k,omitempty"`
	Units int64  `json:"u,omitempty"`
	At    int64  `json:"t,omitempty"` // on the machine's monotonic clock
	Redis int64  `json:"c,omitempty"` // on Redis's clock, which is that of the machine, in µs
}

// what is the kind of an event.
type what int

const (
	// acted: at the time At, the holder was sure that it held a slot of Units units.
	acted what = iota
	// asked: the holder is about to hold units of a rule and key.
	asked
	// refused: the units were not granted, as the holder learned at the time At.
	refused
	// held: the units were granted, and charged at the time Redis.
	held
	// settling: at the time Redis, the holder is about to report that Units units were used.
	settling
	// settled: the holder had reported this by the time At.
	settled
	// settledAll: at the time Redis, no settlement or cancellation requested before At still waited for Redis. For
	// Units of all settlements so far, Redis no longer knew the hold.
	settledAll
)

// journal is a list of a holder's actions, in the order in which it wrote them down.
type journal []event

// fileJournal appends events to a file. Events that were written before the process is killed stay there.
func fileJournal(path string) (write func(event) bool, err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return func(e event) bool {
		line, err := json.Marshal(e)
		if err == nil {
			_, err = file.Write(append(line, '\n'))
		}
		return err == nil
	}, nil
}

func readJournal(t *testing.T, path string) (j journal) {
	t.Helper()
	all, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(all) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // the process was killed while it wrote this line
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%s: %q: %v", path, line, err)
		}
		j = append(j, e)
	}
	return j
}
