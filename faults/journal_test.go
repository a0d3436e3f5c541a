package faults

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
)

// event is something that a holder did: a line of its journal.
type event struct {
	What  what   `json:"e"`
	ID    int64  `json:"i,omitempty"` // of the slot or hold, among the holder's
	Rule  string `json:"r,omitempty"`
	Key   string `json:"k,omitempty"`
	Units int64  `json:"u,omitempty"`
	At    int64  `json:"t,omitempty"` // on the machine's monotonic clock
	Redis int64  `json:"c,omitempty"` // on Redis's clock, which is that of the machine, in µs
}

// what happened.
type what int

const (
	// acted: the holder was sure at the time At that it held a slot of so many units.
	acted what = iota
	// asked: it is about to hold units of a rule and key.
	asked
	// refused: they were not granted, it was told at the time At.
	refused
	// held: they were, and charged at the time Redis.
	held
	// settling: it is about to say that so many were used, at the time Redis.
	settling
	// settled: it has said so, at the time At.
	settled
	// settledAll: no settlement or cancellation that was asked for before At waited for Redis
	// any more at the time Redis. Of so many Redis did not know the hold.
	settledAll
)

// journal is what a holder did, in the order in which it wrote it down.
type journal []event

// fileJournal appends to a file what a process does: what was written before it is killed stays.
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
			break // it was killed while it wrote this
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%s: %q: %v", path, line, err)
		}
		j = append(j, e)
	}
	return j
}
