package tiered

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/lua"
)

// losing is a hook that loses part of the commands or their replies. About half of them are run, and their replies are
// lost. The other half fail at once, and are run later.
type losing struct {
	later redis.UniversalClient // runs the delayed commands, because the connection of a failed command is closed
	part  atomic.Int64          // the commands to lose, per thousand
	late  sync.WaitGroup
	lost  atomic.Int64
}

func (l *losing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *losing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *losing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		dice := rand.Int64N(1000)
		if cmd.Name() != "fcall" && cmd.Name() != "evalsha" || dice >= l.part.Load() {
			return next(ctx, cmd)
		}
		l.lost.Add(1)
		if dice%2 == 0 {
			_ = next(ctx, cmd)
		} else {
			again := redis.NewCmd(context.Background(), copied(cmd.Args())...)
			l.late.Go(func() {
				time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond) // the command's time in the network
				_ = l.later.Process(context.Background(), again)
			})
		}
		cmd.SetErr(io.ErrUnexpectedEOF)
		return io.ErrUnexpectedEOF
	}
}

// copied returns a copy of the arguments as they are now, because some point to buffers that the next trip
// overwrites.
func copied(args []any) []any {
	args = slices.Clone(args)
	for i, arg := range args {
		if text, ok := arg.(*string); ok {
			args[i] = *text
		}
	}
	return args
}

// believers is the set of slots whose holders believe that they hold them.
type believers struct {
	mu    sync.Mutex
	units map[*Slot]int64
	most  int64
}

// add adds a slot, and returns the number of units that are believed to be held at that moment.
func (b *believers) add(s *Slot, units int64) (held int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.units[s] = units
	for slot, units := range b.units {
		if slot.Held() {
			held += units
		}
	}
	b.most = max(b.most, held)
	return held
}

func (b *believers) remove(s *Slot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.units, s)
}

// kill ends a process as SIGKILL does: the process tells Redis nothing, and its holders no longer count as
// believers.
func (b *believers) kill(l *Limiter, rule *Rule) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for slot := range b.units {
		if slot.rule == rule {
			delete(b.units, slot)
		}
	}
	l.stop()
}

// Law 13: at most n units are held at any instant, whatever is acquired and released, whichever processes die,
// and whichever answers are lost. A slot counts as held until its holder knows that it is lost. No unit leaks:
// units that dead processes held are free after the TTL, and units that others released are free at once.
func TestLaw13AtMostNAreHeldAndNothingLeaks(t *testing.T) {
	t.Parallel()
	const (
		n       = 5
		kills   = 12
		workers = 4
		ttl     = 300 * time.Millisecond
	)
	server, prefix := redistest.Shared(t), redistest.Prefix()
	client, lose := server.Client(t), &losing{later: server.Client(t)}
	client.AddHook(lose)
	believe := &believers{units: make(map[*Slot]int64)}
	var acquired, denied atomic.Int64
	start := func() (*Limiter, *Rule) {
		l := newLimiterOn(t, client, prefix, Deadline(20*time.Millisecond))
		return l, newRule(t, l, "jobs", limit.Concurrent(n), SlotTTL(ttl), OnOutage(Deny))
	}
	var over atomic.Bool
	work := func(rule *Rule, dead <-chan struct{}) {
		for !over.Load() {
			select {
			case <-dead:
				return
			default:
			}
			units := 1 + rand.Int64N(2)
			slot, d, err := rule.Acquire(context.Background(), "k", units)
			switch {
			case err != nil:
				return
			case slot == nil:
				denied.Add(1)
				time.Sleep(min(d.RetryAfter, time.Duration(rand.IntN(5))*time.Millisecond))
				continue
			}
			acquired.Add(1)
			select {
			case <-dead: // the dead process never learns that it has the slot
				return
			default:
			}
			if held := believe.add(slot, units); held > n {
				t.Errorf("%d units are held", held)
			}
			if rand.IntN(20) == 0 { // longer than the slot lasts if it is not renewed
				time.Sleep(ttl + ttl/4)
			} else {
				time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
			}
			believe.remove(slot)
			select {
			case <-dead:
				return
			default:
				slot.Release()
			}
		}
	}
	type process struct {
		limiter *Limiter
		rule    *Rule
		dead    chan struct{}
		work    *sync.WaitGroup
	}
	launch := func() process {
		l, rule := start()
		p := process{l, rule, make(chan struct{}), &sync.WaitGroup{}}
		for range workers {
			p.work.Go(func() { work(rule, p.dead) })
		}
		return p
	}
	processes := []process{launch(), launch(), launch()}
	lose.part.Store(60)
	for i := range kills {
		// Between two kills, some slots are acquired and some answers are lost.
		before, lost := acquired.Load(), lose.lost.Load()
		redistest.Eventually(t, "slots are acquired and answers lost", func() bool {
			return acquired.Load() >= before+40 && lose.lost.Load() >= lost+5
		})
		p := &processes[i%len(processes)]
		close(p.dead)
		believe.kill(p.limiter, p.rule)
		p.work.Wait()
		*p = launch()
	}
	over.Store(true)
	for _, p := range processes {
		p.work.Wait()
	}
	lose.part.Store(0)
	lose.late.Wait()
	key := fmt.Sprintf("%s:{k}:jobs:slots", prefix)
	redistest.Eventually(t, "nobody who lives holds anything, and Redis knows", func() bool {
		left := 0
		for _, p := range processes {
			left += int(p.limiter.slots.table.Keys())
		}
		return left == 0
	})
	if left := client.PTTL(context.Background(), key).Val(); left > ttl {
		t.Errorf("what the dead held is free in %v", left)
	}
	redistest.Eventually(t, "the key is empty", func() bool { return client.Exists(context.Background(), key).Val() == 0 })
	t.Logf("%d acquired, %d denied, %d answers lost, at most %d units held", acquired.Load(), denied.Load(), lose.lost.Load(), believe.most)
	if believe.most < n {
		t.Errorf("at most %d units of %d were held: the test shows little", believe.most, n)
	}
}

// A group that waits for a key in doubt leaves nothing registered for its other keys.
func TestAGroupThatWaitsRegistersNothing(t *testing.T) {
	l := newLimiterOn(t, redistest.Shared(t).Client(t), redistest.Prefix())
	r := newRule(t, l, "jobs", limit.Concurrent(5))
	defer mustAcquire(t, r, "b", 1).Release()
	a, b := r.ask("a", 1, lua.Take), r.ask("b", 1, lua.Take)
	redistest.Eventually(t, "a key is in doubt", func() bool {
		l.slots.table.Doubt(l.now(), func(local.HeldKey) bool { return true })
		entered, wait := l.tryEnter([]*question{&a, &b})
		for _, h := range entered {
			h.Unchanged(l.now(), -1)
		}
		return wait != nil
	})
	if n := l.slots.table.Keys(); n != 1 {
		t.Errorf("%d keys are registered, want that of the slot", n)
	}
}
