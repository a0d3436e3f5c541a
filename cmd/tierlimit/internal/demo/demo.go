// Package demo plays recorded requests against a fleet of limiters in one process. The viewer can cut
// the instances' connections to Redis.
package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	random "math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/trace"
	"github.com/tierlimit/tierlimit/internal/live"
	"github.com/tierlimit/tierlimit/limit"
)

// Instances is the size of the fleet.
const Instances = 4

// The bounds of the speed: how many times as fast as recorded the requests may be played.
const (
	MinSpeed = 1
	MaxSpeed = 1000
)

const (
	// seconds is the length of the past that is shown.
	seconds = 60
	// underWay is the largest number of requests that are decided at once. Further requests arrive only
	// if the machine is too slow for the speed. They are left out, and counted.
	underWay = 1000
)

// Config says what to play.
type Config struct {
	Trace *trace.Trace
	Limit limit.Limit
	Speed int            // see [Demo.SetSpeed]
	Redis *redis.Options // the Redis that all instances share
	Hosts []string       // names under which browsers may request the pages, see livepage.Hosts
}

// Demo is a fleet that decides recorded requests. The limit applies in real time: the faster the
// requests are played, the more of them are denied. It is safe for concurrent use.
type Demo struct {
	trace  *trace.Trace
	limit  limit.Limit
	redis  *redis.Options
	prefix string
	fleet  []*instance
	hosts  live.Hosts
	speed  atomic.Int64
	stop   context.CancelFunc
	done   <-chan struct{}

	playing  sync.WaitGroup
	requests sync.WaitGroup
	places   chan struct{}

	mu       sync.Mutex // guards the fields below
	judge    *judge
	now      tally
	past     []tally // the last seconds, the latest last
	leftOut  int
	failed   int
	lastErr  error
	recorded int64 // the current position in the trace, in microseconds since the Unix epoch
}

// tally counts what happened in one second.
type tally struct {
	counts  [Instances][limit.TierFallback + 1]count
	fullest int64 // units that one key had in the fullest of the windows judged
}

// count counts the decisions of one tier.
type count struct{ allowed, denied int }

// Start starts the fleet and plays the trace, over and over, until Close.
func Start(c Config) (*Demo, error) {
	return start(c, pace{second: time.Second, deadline: 100 * time.Millisecond}) // the embedded Redis is slow
}

// pace has the times that tests choose: the length of a second, and the longest time of a decision.
type pace struct{ second, deadline time.Duration }

func start(c Config, p pace) (*Demo, error) {
	if c.Limit.IsCalendar() {
		return nil, fmt.Errorf("the limit %v is a calendar limit; the demo needs a window of fixed length, as in 20/10s", c.Limit)
	}
	d := &Demo{trace: c.Trace, limit: c.Limit, redis: c.Redis, prefix: "tierlimit-demo-" + strings.ToLower(rand.Text()[:12]), judge: newJudge(c.Limit), places: make(chan struct{}, underWay)}
	if err := d.SetSpeed(c.Speed); err != nil {
		return nil, err
	}
	var err error
	if d.hosts, err = live.NewHosts(c.Hosts...); err != nil {
		return nil, err
	}
	if d.fleet, err = startFleet(c, d.prefix, Instances, p.deadline); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	d.stop, d.done = stop, ctx.Done()
	d.playing.Go(func() { d.play(ctx) })
	d.playing.Go(func() { d.count(ctx, p.second) })
	return d, nil
}

// Close ends the demo and leaves nothing behind.
func (d *Demo) Close() error {
	d.stop()
	d.playing.Wait()
	d.requests.Wait()
	return errors.Join(closeFleet(d.fleet), removeKeys(d.redis, d.prefix))
}

// SetSpeed makes the demo play requests the given number of times as fast as they were recorded.
func (d *Demo) SetSpeed(times int) error {
	if times < MinSpeed || times > MaxSpeed {
		return fmt.Errorf("speed %d, must be between %d and %d", times, MinSpeed, MaxSpeed)
	}
	d.speed.Store(int64(times))
	return nil
}

// errNoInstance is wrapped by errors about an instance that does not exist.
var errNoInstance = errors.New("no such instance")

// SetCut cuts, or restores, an instance's connection to Redis. Instances count from 0.
func (d *Demo) SetCut(instance int, cut bool) error {
	if instance < 0 || instance >= len(d.fleet) {
		return fmt.Errorf("%w: %d of %d", errNoInstance, instance+1, len(d.fleet))
	}
	d.fleet[instance].wire.set(cut)
	return nil
}

// play sends each request to a random instance when the request's time has come.
func (d *Demo) play(ctx context.Context) {
	// A change of speed takes effect within one step.
	const step = 20 * time.Millisecond
	next, at := 0, float64(d.trace.At(0))
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(step):
		}
		now := time.Now()
		at += float64(now.Sub(last).Microseconds()) * float64(d.speed.Load())
		last = now
		for next < d.trace.Len() && float64(d.trace.At(next)) <= at {
			d.send(ctx, d.trace.Event(next).Key)
			next++
		}
		d.mu.Lock()
		d.recorded = int64(at)
		d.mu.Unlock()
		if next == d.trace.Len() {
			next, at = 0, float64(d.trace.At(0))
		}
	}
}

// send lets a random instance decide a request.
func (d *Demo) send(ctx context.Context, key string) {
	select {
	case d.places <- struct{}{}:
	default:
		d.mu.Lock()
		d.leftOut++
		d.mu.Unlock()
		return
	}
	i := random.IntN(len(d.fleet))
	d.requests.Go(func() {
		defer func() { <-d.places }()
		decision, at, err := d.fleet[i].allow(ctx, key)
		d.mu.Lock()
		defer d.mu.Unlock()
		switch {
		case ctx.Err() != nil:
		case err != nil:
			d.failed++
			d.lastErr = err
		default:
			tier := decision.Tier
			if decision.Degraded() {
				tier = limit.TierFallback // the chart does not show why
			}
			c := &d.now.counts[i][tier]
			if decision.Allowed {
				c.allowed++
			} else {
				c.denied++
			}
			d.judge.add(verdict{at: at, key: key, allowed: decision.Allowed})
		}
	})
}

// count closes a tally every second.
func (d *Demo) count(ctx context.Context, second time.Duration) {
	ticker := time.NewTicker(second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		d.mu.Lock()
		d.now.fullest = d.judge.until(time.Now().Add(-settled).UnixMicro())
		d.past = append(d.past, d.now)
		d.past = d.past[max(0, len(d.past)-seconds):]
		d.now = tally{}
		d.mu.Unlock()
	}
}

// Member is the present state of an instance.
type Member struct {
	Number   int // from 1
	Cut      bool
	Degraded bool
	Fleet    int // size of the fleet, as the instance knows it
}

// Members returns the state of all instances.
func (d *Demo) Members() []Member {
	var all []Member
	for i, in := range d.fleet {
		all = append(all, Member{Number: i + 1, Cut: in.wire.isCut(), Degraded: in.limiter.Degraded(), Fleet: in.limiter.FleetSize()})
	}
	return all
}
