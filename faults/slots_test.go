//go:build unix

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

const heldTTL = 2 * time.Second

func slotRule(l *tiered.Limiter) (*tiered.Rule, error) {
	return l.Rule("jobs", limit.Concurrent(1), tiered.SlotTTL(heldTTL), tiered.OnOutage(tiered.Deny), tiered.DenialLife(0))
}

// holdSlot runs a worker that acquires a slot, and acts on it for as long as it may. At the end it prints the time
// when it last acted.
func holdSlot(t task) (err error) {
	l, err := t.open(time.Second)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	rule, err := slotRule(l)
	if err != nil {
		return err
	}
	slot, err := rule.AcquireWait(context.Background(), "k", 1)
	if err != nil {
		return err
	}
	for acted := int64(0); ; {
		now := monotonic()
		if !slot.Held() {
			told, err := json.Marshal(acted)
			fmt.Println(string(told))
			return err
		}
		if acted == 0 {
			fmt.Println("ready") // The worker acts once first, so that the time of its last action is known.
		}
		acted = now
		time.Sleep(100 * time.Microsecond)
	}
}

// Law 13: a process that is stopped for longer than its slots last knows that it has lost them as soon as it goes
// on, and before it acts on them again. A process that is killed holds nothing after that time.
func TestLaw13AfterAPauseASlotIsKnownToBeLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newLimiter(t, server.Client(t), "slots", tiered.Deadline(patient))
	rule, err := slotRule(l)
	if err != nil {
		t.Fatal(err)
	}
	for _, signal := range []unix.Signal{unix.SIGSTOP, unix.SIGKILL} {
		w := startWorker(t, task{Addr: server.Addr(), Prefix: "slots", Holds: true})
		w.awaitReady(t)
		if slot, d, err := rule.Acquire(t.Context(), "k", 1); slot != nil || err != nil {
			t.Fatalf("both hold it: %+v, %v", d, err)
		}
		w.signal(t, signal)
		slot, err := rule.AcquireWait(t.Context(), "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		acquired := monotonic()
		if signal == unix.SIGSTOP {
			w.signal(t, unix.SIGCONT)
			line, err := w.output.ReadBytes('\n')
			var acted int64
			if err == nil {
				err = json.Unmarshal(line, &acted)
			}
			if err != nil || acted == 0 || acted >= acquired {
				t.Errorf("it acted %v after another process had acquired the slot, %v", time.Duration(acted-acquired), err)
			}
		}
		slot.Release()
	}
}
