package outage

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// cluster stands in for a Cluster's masters, which charge as Redis does: a charge is made if its sequence number
// is higher than that of the key's last charge.
type cluster struct {
	mu      sync.Mutex // guards the rest
	random  *rand.Rand
	faulty  bool
	held    func(in *Shard) // called while a shard's charge is in flight, but not during another such call
	last    map[string]int64
	charged map[remote.UserKey]int64
}

// ofCluster is the connection of a shard to a cluster.
type ofCluster struct {
	*master
	c *cluster
	s *Shard
}

func (m ofCluster) Decide(_ context.Context, e remote.Entry) (reply remote.Reply, err error) {
	c := m.c
	c.mu.Lock()
	defer c.mu.Unlock()
	makes, fault := true, 10
	if c.faulty {
		fault = c.random.IntN(10)
	}
	switch fault {
	case 0:
		makes, err = false, errLost
	case 1:
		makes, err = false, tryAgain{}
	case 2:
		makes, err = false, remote.ErrNoAnswer
	case 3, 4:
		err = remote.ErrNoAnswer
	case 5:
		if held := c.held; held != nil {
			c.held = nil
			c.mu.Unlock()
			held(m.s)
			c.mu.Lock()
			c.held = held
		}
	}
	if makes && e.Sequence > c.last[e.Key] {
		c.last[e.Key] = e.Sequence
		for _, charge := range e.Charges {
			reply.Granted += charge.Units
		}
		c.charged[remote.UserKey(e.Key)] += reply.Granted
	}
	return reply, err
}

func (m ofCluster) DecideApart(entries []remote.Entry, _ time.Duration) []remote.Reply {
	return oneByOne(entries, func(e remote.Entry) (remote.Reply, error) { return m.Decide(context.Background(), e) })
}

func (c *cluster) draw(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(n)
}

// Law 3: each unit is charged exactly once, and is owed until then, whatever happens to charges and their
// answers, while slots move, masters are lost, and rules get other windows.
func TestLaw3ChargesAreExact(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		l, c := newShards(t, 0), &cluster{random: random, faulty: true, last: map[string]int64{}, charged: map[remote.UserKey]int64{}}
		connect := l.Connect
		l.Connect = func(s *Shard, assumed int) (Decider, Membership) {
			_, m := connect(s, assumed)
			return ofCluster{m.(*master), c, s}, m
		}
		l.first.Decider = ofCluster{l.masters[0], c, l.first}
		alive := []string{"a", "b", "c"}
		moves := func() {
			owners := map[string][]int{}
			for i := range 16 {
				addr := alive[c.draw(len(alive))]
				if i < len(alive) {
					addr = alive[i] // each master keeps some slots, so only shards of lost masters go out of use
				}
				owners[addr] = append(owners[addr], i*sixteenth)
			}
			l.reroute(mastersOf(owners))
		}
		moves()
		for _, m := range l.masters {
			m.heard.Size = 1
			m.met = true
		}
		rules := []*Rule{newRule(t, "r", limit.PerHour(100_000), limit.SlidingLog()), newRule(t, "r", limit.PerDay(100_000), limit.SlidingLog())}
		granted := map[remote.UserKey]int64{}
		grant := func() {
			key := remote.UserKey(fmt.Sprint(c.draw(30)))
			d := without(l.Of(key), request(rules[c.draw(2)], key, 1+int64(c.draw(9))), l.Now(), errLost)
			granted[key] += d.Granted
		}
		chargeAll := func(but *Shard) {
			for _, s := range l.routes.Load().shards {
				if s != but {
					s.chargeSome()
				}
			}
		}
		c.held = func(in *Shard) {
			moves()
			for range 3 {
				grant()
			}
			chargeAll(in)
		}
		check := func() {
			t.Helper()
			var owed int64
			for key, units := range granted {
				owed += units - c.charged[key]
			}
			if uncharged := l.Uncharged(); uncharged < owed {
				rt.Fatalf("%d units count as uncharged, %d are", uncharged, owed)
			}
			if owes := slices.ContainsFunc(l.InUse(), (*Shard).Owes); owed > 0 && !owes {
				rt.Fatalf("nobody owes the %d units that are not charged", owed)
			}
		}
		for range 50 {
			switch n := c.draw(20); {
			case n < 10:
				grant()
			case n < 16:
				chargeAll(nil)
			case n < 18:
				moves()
			case n < 19 && len(alive) > 1:
				s := l.ofSlot(c.draw(16))
				addr, _ := s.Location()
				alive = slices.DeleteFunc(alive, func(a string) bool { return a == addr })
				moves()
				s.Breaker.ForceOpen(errLost) // the shard is no longer probed, because it has no slots
			default:
				l.now.Add(int64(ProbeEvery))
			}
			check()
		}
		c.faulty = false
		for range 50 {
			l.now.Add(int64(ProbeEvery))
			chargeAll(nil)
			check()
		}
		if l.Uncharged() != 0 || !maps.Equal(c.charged, granted) {
			rt.Errorf("%d units are not charged; charged %v, granted %v", l.Uncharged(), c.charged, granted)
		}
	})
}
