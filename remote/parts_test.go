package remote

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
)

// failsParts is a hook that makes commands of a pipeline fail after they have run. The map has the errors by the
// commands' positions; while it is empty, no command fails.
type failsParts struct{ errs *map[int]error }

func (failsParts) DialHook(next redis.DialHook) redis.DialHook { return next }

func (failsParts) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h failsParts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for i, failed := range *h.errs {
			cmds[i].SetErr(failed)
			err = failed
		}
		return err
	}
}

// Calls without an answer in time end with ErrNoAnswer also if other slots of their trip were answered. This error
// distinguishes an overload from an outage.
func TestPartsOfATripHaveNoAnswer(t *testing.T) {
	client := redistest.SharedCluster(t).Client(t)
	var errs map[int]error
	client.AddHook(failsParts{&errs})
	b, trips := newBatcher(t, client)
	rule, prefix := newRule(t, limit.PerHour(10), limit.GCRA()), redistest.Prefix()
	var entries []Entry
	for slot := uint16(0); len(entries) < 2; slot++ { // two slots of one master
		entries = append(entries, Entry{Key: newKeyspace(t, "tl").fleetKeyIn(slot) + prefix, Rule: rule, Cost: 1})
	}
	if _, err := b.DecideAll(t.Context(), entries, b.opt.Deadline); err != nil {
		t.Fatal(err)
	}
	errs = map[int]error{1: os.ErrDeadlineExceeded}
	replies, err := b.DecideAll(t.Context(), entries, b.opt.Deadline)
	if err != nil || len(replies) != 2 {
		t.Fatalf("%+v, %v", replies, err)
	}
	if r := replies[0]; r.Err != nil || r.Status != Allowed || r.Remaining != 8 {
		t.Errorf("what was answered: %+v", r)
	}
	if err := replies[1].Err; !errors.Is(err, ErrNoAnswer) || !MayHaveRun(err) {
		t.Errorf("what was not answered in time: %v", err)
	}
	if _, failed := trips.trips(); len(failed) != 1 || !errors.Is(failed[0], ErrNoAnswer) {
		t.Errorf("the breaker was told of %v", failed)
	}

	// Law 3: the error of a trip that has failed as a whole is true for each of its parts.
	errs[0] = &net.OpError{Op: "dial", Err: errors.New("refused")} // this error proves that nothing was charged
	if _, err := b.DecideAll(t.Context(), entries, b.opt.Deadline); !MayHaveRun(err) {
		t.Errorf("one part was refused, the other not answered: %v", err)
	}

	// If a third slot was answered, the breaker is told what says most about Redis, in whichever order the errors come.
	entries = append(entries, Entry{Key: newKeyspace(t, "tl").fleetKeyIn(2) + prefix, Rule: rule, Cost: 1})
	for _, unserved := range []int{0, 1} {
		errs = map[int]error{unserved: refusal("CLUSTERDOWN Hash slot not served"), 1 - unserved: os.ErrDeadlineExceeded}
		_, before := trips.trips()
		if _, err := b.DecideAll(t.Context(), entries, b.opt.Deadline); err != nil {
			t.Fatal(err)
		}
		if _, failed := trips.trips(); len(failed) != len(before)+1 || !errors.Is(failed[len(before)], ErrNoAnswer) {
			t.Errorf("slot %d has no master, and the other was not answered: the breaker was told of %v", unserved, failed[len(before):])
		}
	}
}
