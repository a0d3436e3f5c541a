package lease

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/local/ledger"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/remote"
)

// master stands in for Redis: it grants the leases that it is asked for, and notes refunds.
type master struct {
	outage.Membership
	asked    []remote.Entry
	refunded int64
	grants   int64 // at most, for a lease
	err      error
}

func (m *master) Answered() int64             { return 0 }
func (m *master) Close()                      {}
func (m *master) Heard() bool                 { return true }
func (m *master) Size() int                   { return 1 }
func (m *master) Leave(context.Context) error { return nil }

func (m *master) DecideInto(ctx context.Context, e *remote.Entry, reply *remote.Reply) (err error) {
	*reply, err = m.Decide(ctx, *e)
	return err
}

func (m *master) Decide(_ context.Context, e remote.Entry) (remote.Reply, error) {
	m.asked = append(m.asked, e)
	switch {
	case m.err != nil:
		return remote.Reply{}, m.err
	case e.Operation == lua.Refund:
		m.refunded += e.Cost
		return remote.Reply{Granted: e.Cost}, nil
	}
	return remote.Reply{Granted: min(e.Cost, m.grants), Life: e.Lease.Life, Stamp: 7, Remaining: 50}, nil
}

func (m *master) DecideAll(ctx context.Context, entries []remote.Entry, _ time.Duration) ([]remote.Reply, error) {
	var replies []remote.Reply
	for _, e := range entries {
		reply, err := m.Decide(ctx, e)
		if err != nil {
			return nil, err
		}
		replies = append(replies, reply)
	}
	return replies, nil
}

type silent struct{}

func (silent) Opened()                        {}
func (silent) Forgot()                        {}
func (silent) Charged(int64)                  {}
func (silent) Missed(outage.Miss)             {}
func (silent) Trip(int, time.Duration, error) {}
func (silent) Warn(string, string, ...any)    {}
func (silent) Info(string, string, ...any)    {}

// A key that is asked for often gets a lease; what is not spent of it is given back when it is
// idle, and by Close (law 12). Without Redis there is none, and nothing is lost.
func TestLeasesWithoutRedis(t *testing.T) {
	now := int64(time.Hour)
	clock := func() int64 { return now }
	m := &master{grants: 20}
	var background sync.WaitGroup
	shards := outage.New(outage.Config{
		Context: t.Context(), Go: background.Go, Now: clock, Ledger: ledger.New[*outage.Rule](8), Counts: silent{}, Log: silent{}, Turned: func() {},
		Connect: func(*outage.Shard, int) (outage.Decider, outage.Membership) { return m, m },
	})
	var notGivenBack error
	k := New(Config{
		Context: t.Context(), Go: background.Go, Now: clock, Deadline: time.Second, Virtual: true,
		Shard: shards.Of, NotGivenBack: func(err error) { notGivenBack = err },
	})
	k.Begin()
	lim := limit.PerMinute(1000)
	terms, inRedis := NewTerms(local.NewHasher(), "r", lim, limit.SlidingLog(), 10, false)
	if inRedis != lim || terms.Most != 100 || terms.Reserve != 100 || terms.Life != Longest {
		t.Fatalf("%+v, in Redis %v", terms, inRedis)
	}
	if none, _ := NewTerms(local.NewHasher(), "r", limit.PerMinute(9), limit.SlidingLog(), 10, false); none != nil {
		t.Errorf("less than a unit on lease: %+v", none)
	}
	var forgotten []uint64
	r := &Rule{Terms: terms, Outage: &outage.Rule{Name: "r", Limit: lim, Capacity: 1000}, ForgetDenial: func(hash uint64) { forgotten = append(forgotten, hash) }}
	const hash, key = 42, "k"
	demand := func() {
		for range 20 {
			k.Granted(r, hash, key, 1)
			now += int64(time.Millisecond)
		}
	}
	if _, ok := k.Spend(r, hash, now, 1, 1); ok {
		t.Fatal("a lease before any was asked for")
	}
	demand()
	spent, ok := k.Spend(r, hash, now, 3, 3)
	if !ok || spent.Stamp != 7 || k.Left() != m.left()-3 {
		t.Fatalf("%+v, %v, %d left", spent, ok, k.Left())
	}
	left := k.Left()
	now += int64(Longest) // it is idle, and over
	if _, ok := k.Spend(r, hash, now, 1, 0); ok || m.refunded != left || k.Left() != 0 || !slices.Contains(forgotten, hash) {
		t.Errorf("%d of %d units given back, denials forgotten: %v", m.refunded, left, forgotten)
	}

	m.err = errors.New("lost")
	if demand(); k.Left() != 0 || notGivenBack != nil {
		t.Errorf("%d units without Redis, %v", k.Left(), notGivenBack)
	}
	m.err = nil
	now += int64(time.Minute)
	demand()
	left = k.Left()
	m.refunded = 0
	if k.Close(); left == 0 || m.refunded != left || k.Left() != 0 {
		t.Errorf("closing gave back %d of %d units", m.refunded, left)
	}
	if demand(); k.Left() != 0 {
		t.Error("a lease after Close")
	}
}

// left is how many units the last lease had.
func (m *master) left() int64 {
	last := m.asked[len(m.asked)-1]
	return min(last.Cost, m.grants)
}

func (m *master) TurnsAway() bool             { return false }
func (m *master) DelayDenied(context.Context) {}
