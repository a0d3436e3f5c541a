package outage

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlimit/tierlimit/remote"
)

// A limiter says at its start that Redis is too far away for its deadline only if that is so once it has connected.
// If Redis stops answering as soon as it has counted the instance, the start is none without Redis.
func TestTheFirstHeartbeats(t *testing.T) {
	const short, long = time.Millisecond, 40 * time.Millisecond
	for name, c := range map[string]struct {
		took []time.Duration // by heartbeat; those after the last one get no answer
		slow bool
	}{
		"only connecting takes long": {[]time.Duration{long, short, short, short}, false},
		"some take long":             {[]time.Duration{long, long, short, long}, false},
		"all take long":              {[]time.Duration{long, long, long, long}, true},
		"one is answered":            {[]time.Duration{long}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newShards(t, 1)
				s, m, sent := l.first, l.masters[0], 0
				var log warnings
				l.Log = &log
				m.delayed = func() {
					time.Sleep(c.took[sent])
					if sent++; sent == len(c.took) {
						m.err = remote.ErrNoAnswer
					}
				}
				if err := l.Join(); err != nil || s.State() != Healthy {
					t.Errorf("%v: %v", s.State(), err)
				}
				if said := strings.Contains(strings.Join(log, "\n"), "so far away"); said != c.slow || len(log) > 1 || sent != len(c.took) {
					t.Errorf("after %d heartbeats it logged %q", sent, log)
				}
			})
		})
	}
}

// A shard sends heartbeats while its master has slots, and does something before each.
func TestHeartbeatsAreForMastersWithSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newShards(t, 0)
		var before atomic.Int64
		l.BeforeHeartbeat = func() { before.Add(1) }
		ctx, stop := context.WithCancel(t.Context())
		l.Context = ctx
		l.reroute(mastersOf(map[string][]int{"a": ranges(0, 8), "b": ranges(8, 16)}))
		s := l.ofSlot(0)
		master := l.masters[s.index]
		sent := func() int64 {
			master.mu.Lock()
			defer master.mu.Unlock()
			return master.heard.Sequence
		}
		var keeping sync.WaitGroup
		keeping.Go(s.keep)
		during := func(d time.Duration) (n int64) {
			was := sent()
			time.Sleep(d)
			synctest.Wait()
			return sent() - was
		}
		if n := during(10 * heartbeatEvery); n < 9 || n > 10 || before.Load() != n {
			t.Errorf("%d heartbeats in 10 s, and %d calls before them", n, before.Load())
		}
		l.reroute(mastersOf(map[string][]int{"b": ranges(0, 16)}))
		if n := during(10 * heartbeatEvery); n != 0 {
			t.Errorf("%d heartbeats to a master without slots", n)
		}
		stop()
		keeping.Wait()
	})
}

// A Redis that is lost after it has lost its data is probed as often as any other, although the settling after it
// lasts for a window.
func TestALostRedisIsProbedOftenAfterALossOfData(t *testing.T) {
	l := newShards(t, 1)
	s := l.first
	l.heartbeat(t, s)
	l.masters[0].heard.Generation = "another"
	l.heartbeat(t, s)
	if d := s.untilNextHeartbeat(); s.State() != Settling || d < heartbeatEvery {
		t.Fatalf("%v, next heartbeat in %v", s.State(), d)
	}
	s.Breaker.ForceOpen(errLost)
	if d := s.untilNextHeartbeat(); d > ProbeEvery*11/10 {
		t.Errorf("the next probe is in %v, want %v", d, ProbeEvery)
	}
}

// A probe must keep the deadline with its second heartbeat. The first one may have to connect, and take longer.
func TestAProbeMustKeepTheDeadlineOnceItHasConnected(t *testing.T) {
	const short, long = 40 * time.Millisecond, 60 * time.Millisecond
	for took, closes := range map[[2]time.Duration]bool{{short, short}: true, {long, short}: true, {short, long}: false} {
		synctest.Test(t, func(t *testing.T) {
			l := newShards(t, 1)
			s, sent := l.first, 0
			s.Breaker.ForceOpen(errLost)
			time.Sleep(2 * ProbeEvery)
			l.masters[0].delayed = func() { time.Sleep(took[sent]); sent++ }
			if s.probe(); s.Breaker.Closed() != closes || sent != len(took) {
				t.Errorf("after heartbeats that took %v of %v the breaker is closed: %v", took[:sent], l.Deadline, s.Breaker.Closed())
			}
		})
	}
}

// deadlines is a Membership that records how much time its heartbeats have.
type deadlines struct {
	Membership
	within []time.Duration
}

func (d *deadlines) Heartbeat(ctx context.Context, unsettled bool, lost ...remote.Loss) (remote.Heard, error) {
	until, _ := ctx.Deadline()
	d.within = append(d.within, time.Until(until))
	return d.Membership.Heartbeat(ctx, unsettled, lost...)
}

// A heartbeat may take longer than it should, because it may have to connect, but not longer than the start of a limiter
// if its own time is shorter than that.
func TestHeartbeatsHaveTimeToConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newShards(t, 1)
		d := &deadlines{Membership: l.first.fleet}
		l.first.fleet = d
		for _, own := range []time.Duration{50 * time.Millisecond, StartWithin / 2, StartWithin, 2 * StartWithin} {
			if err := l.first.Heartbeat(own); err != nil {
				t.Fatal(err)
			}
		}
		if want := []time.Duration{200 * time.Millisecond, StartWithin, StartWithin, 2 * StartWithin}; !slices.Equal(d.within, want) {
			t.Errorf("heartbeats had %v, want %v", d.within, want)
		}
	})
}

// Probes that fail belong to the outage that has begun, and do not begin another one.
func TestProbesThatFailBeginNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newShards(t, 1)
		s := l.first
		s.Breaker.ForceOpen(errLost)
		began := s.incident.Load()
		l.masters[0].err = remote.ErrNoAnswer
		for range 3 {
			time.Sleep(2 * ProbeEvery)
			l.now.Add(int64(2 * ProbeEvery))
			s.probe()
		}
		if n := l.Counts.Opened.Load(); n != 1 || s.incident.Load() != began {
			t.Errorf("%d outages after three probes that failed; the incident is the same: %v", n, s.incident.Load() == began)
		}
	})
}

// A limiter that starts without Redis says why it is in an outage, and counts that Redis could not be asked.
func TestTheReasonForAStartWithoutRedis(t *testing.T) {
	l := newShards(t, 1)
	failed := 0
	l.HeartbeatFailed = func(error) { failed++ }
	l.masters[0].err = remote.ErrNoAnswer
	if err := l.Join(); err != nil || l.State() != Outage || !errors.Is(l.Reason(), remote.ErrNoAnswer) || failed != 1 {
		t.Errorf("%v: it is in %v because of %v, and %d failures are counted", err, l.State(), l.Reason(), failed)
	}
}
