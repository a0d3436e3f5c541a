package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/ristretto/v2"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// workerVariable holds a worker's duty. The program starts itself again with this variable set.
const workerVariable = "TIERLIMIT_OUTAGE_WORKER"

// duty is the configuration of a worker.
type duty struct {
	Redis      string
	Quota      int64
	Window     time.Duration
	Deadline   time.Duration
	FleetSize  int
	LedgerKeys int
	GCRA       bool // instead of the algorithm that is chosen by the limit's size, with a burst of a tenth of the limit
	Baselines  bool
	Log        string // file to log calls to
	Seed       uint64
	Verbose    bool
}

// order is a line on a worker's standard input. The worker ends when the input does.
type order struct {
	Rate     float64 // requests a second
	Heavy    int     // of the first Heavy keys, chosen at random
	TailRate float64 // requests a second for the tail
	Tail     int     // number of other keys, asked for in turn
	From     int     // the first of them to ask for
	Once     bool    // stop after each of them has been asked for once
}

// news is a line on a worker's standard output. It is written when something in it has changed.
type news struct {
	Fleet    int
	Degraded bool
	Idle     bool // an order with Once is done
	Charged  bool // Redis alone decides, because all instances have charged what they granted
	Final    *final
}

// final is a worker's report at its end.
type final struct {
	Calls      int64
	Errors     map[string]int // how often each occurred
	Slow       []slowCall
	HeapBefore uint64 // bytes, after the limiter was made
	HeapAfter  uint64
}

// slowCall is a call that ended after its deadline. Stall is how late a bare timer of the same length was: the
// machine, and not the call, is to blame for that part.
type slowCall struct {
	By    subject
	At    int64
	Took  time.Duration
	Stall time.Duration
}

func isWorker() bool { return os.Getenv(workerVariable) != "" }

func workerMain() {
	tiered.LogOfRedis(nil)
	if err := work(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "outage worker:", err)
		os.Exit(1)
	}
}

type worker struct {
	duty    duty
	limiter *tiered.Limiter
	rules   [subjects]*tiered.Rule
	cache   *ristretto.Cache[uint64, int64] // for bare calls
	random  *rand.Rand                      // used by the loop that offers load only
	flying  sync.WaitGroup
	calls   atomic.Int64

	mu        sync.Mutex // guards the rest
	log       *bufio.Writer
	fallbacks [subjects]map[uint32]*rate.Limiter
	final     final
}

// work makes a limiter, offers it the ordered load, and logs every call.
func work(stdin io.Reader, stdout io.Writer) error {
	w := &worker{final: final{Errors: make(map[string]int)}}
	if err := json.Unmarshal([]byte(os.Getenv(workerVariable)), &w.duty); err != nil {
		return err
	}
	w.random = rand.New(rand.NewPCG(w.duty.Seed, 0))
	file, err := os.Create(w.duty.Log)
	if err != nil {
		return err
	}
	w.log = bufio.NewWriterSize(file, 1<<16)
	if err := w.open(); err != nil {
		return err
	}
	w.final.HeapBefore = heap()

	orders := make(chan order)
	go func() {
		defer close(orders)
		for lines := json.NewDecoder(stdin); ; {
			var o order
			if lines.Decode(&o) != nil {
				return // the end of the input, or the parent has died
			}
			orders <- o
		}
	}()
	tell := json.NewEncoder(stdout)
	if err := w.obey(orders, tell); err != nil {
		return err
	}
	w.flying.Wait()
	w.final.Calls = w.calls.Load()
	w.final.HeapAfter = heap()
	_ = w.limiter.Close() // the error is that the instance could not leave the fleet, as while Redis is lost
	if err := w.log.Flush(); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return tell.Encode(news{Final: &w.final})
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func (w *worker) open() (err error) {
	level := slog.LevelError + 1
	if w.duty.Verbose {
		level = slog.LevelDebug
	}
	w.limiter, err = tiered.Open(&redis.UniversalOptions{Addrs: []string{w.duty.Redis}},
		tiered.Deadline(w.duty.Deadline), tiered.FleetSize(w.duty.FleetSize), tiered.LedgerKeys(w.duty.LedgerKeys),
		tiered.Logger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))))
	if err != nil {
		return err
	}
	lim, options := limit.Per(w.duty.Quota, w.duty.Window), []tiered.RuleOption(nil)
	if w.duty.GCRA {
		lim, options = lim.WithBurst(w.duty.Quota/burstPart), append(options, tiered.Use(limit.GCRA()))
	}
	for by := range subjects {
		policy := tiered.Deny // for the common ways of limiting, which have fallbacks of their own
		if by == ours {
			policy = tiered.Approximate
		}
		w.fallbacks[by] = make(map[uint32]*rate.Limiter)
		if w.rules[by], err = w.limiter.Rule(fmt.Sprint("rule", uint8(by)), lim, append(options, tiered.OnOutage(policy))...); err != nil {
			return err
		}
	}
	if w.cache, err = ristretto.NewCache(&ristretto.Config[uint64, int64]{NumCounters: 1000, MaxCost: 100, BufferItems: 64}); err != nil {
		return err
	}
	w.cache.Set(0, 1, 1)
	w.cache.Wait()
	return nil
}

// obey offers the ordered load until its input ends.
func (w *worker) obey(orders <-chan order, tell *json.Encoder) error {
	var o order
	var told news
	var heavy [subjects + 1]stream // of each subject, and of bare calls
	var tail stream                // of our subject
	restart := func() {
		for by := range heavy {
			rate := o.Rate
			if subject(by) != ours && !w.duty.Baselines {
				rate = 0
			}
			heavy[by] = w.newStream(rate)
		}
		if !w.duty.Baselines {
			heavy[bare] = w.newStream((o.Rate + o.TailRate) / sparsely)
		}
		tail = w.newStream(o.TailRate)
	}
	restart()
	idle := false
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		if current := (news{Fleet: w.limiter.FleetSize(), Degraded: w.limiter.Degraded(), Idle: idle, Charged: w.limiter.State() == tiered.Healthy}); current != told {
			told = current
			if err := tell.Encode(told); err != nil {
				return err
			}
		}
		next := tail.next
		for _, h := range heavy {
			if h.next.Before(next) {
				next = h.next
			}
		}
		select {
		case given, more := <-orders:
			if !more {
				return nil
			}
			o, idle = given, false
			restart()
		case <-look.C:
		case <-time.After(time.Until(next)):
			for by := range heavy {
				for h := &heavy[by]; w.due(h); {
					w.offer(subject(by), uint32(w.random.IntN(max(1, o.Heavy))))
				}
			}
			for !idle && w.due(&tail) {
				w.offer(ours, uint32(o.Heavy+(o.From+tail.count)%o.Tail))
				tail.count++
				idle = o.Once && tail.count == o.Tail
			}
			if idle {
				o = order{}
				restart()
			}
		}
	}
}

// sparsely is the number of requests for each bare call, in scenarios without the common ways to compare with.
const sparsely = 16

// stream is requests at random times, on average rate a second.
type stream struct {
	rate  float64
	next  time.Time
	count int
}

// farOff is how far in the future a stream without requests has its next one.
const farOff = 24 * time.Hour

func (w *worker) newStream(rate float64) stream {
	s := stream{rate: rate, next: time.Now()}
	w.schedule(&s)
	return s
}

func (w *worker) schedule(s *stream) {
	if s.rate <= 0 {
		s.next = time.Now().Add(farOff)
		return
	}
	s.next = s.next.Add(time.Duration(w.random.ExpFloat64() * float64(time.Second) / s.rate))
}

// due reports whether a stream's next request is due. If so, it schedules the one after it.
func (w *worker) due(s *stream) bool {
	if s.rate <= 0 || time.Now().Before(s.next) {
		return false
	}
	w.schedule(s)
	return true
}

// offer makes a request, whether or not earlier ones have been answered. The subjects' requests come at different
// times, because requests at the same moment would wait for each other.
func (w *worker) offer(by subject, key uint32) {
	w.flying.Go(func() { w.decide(by, key) })
}

func (w *worker) decide(by subject, key uint32) {
	name := fmt.Sprint("key", key)
	degraded := w.limiter.Degraded()
	late := make(chan time.Duration, 1)
	started := time.Now()
	control := time.AfterFunc(w.duty.Deadline, func() { late <- time.Since(started) - w.duty.Deadline })
	called := time.Now()
	var d limit.Decision
	var err error
	if by == bare {
		w.cache.Get(uint64(key))
	} else {
		d, err = w.rules[by].Allow(context.Background(), name)
	}
	ended := time.Now()
	took := ended.Sub(called)
	if by != ours && err == nil && d.Tier == limit.TierFallback {
		d.Allowed = w.fallback(by, key).Allow()
	}
	var stall time.Duration
	if took > w.duty.Deadline {
		stall = <-late
	}
	control.Stop()
	w.calls.Add(1)
	c := call{at: micros(ended), key: key, took: took, tier: d.Tier, by: by, allowed: d.Allowed, degraded: degraded}
	encoded := c.encode()

	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		if by == ours {
			w.final.Errors[err.Error()]++
		}
		return
	}
	if took > w.duty.Deadline && len(w.final.Slow) < 100_000 {
		w.final.Slow = append(w.final.Slow, slowCall{by, c.at, took, stall})
	}
	_, _ = w.log.Write(encoded[:]) // Flush returns its error again
}

// fallback returns the in-process limiter of one of the common ways.
func (w *worker) fallback(by subject, key uint32) *rate.Limiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.fallbacks[by][key]
	if l == nil {
		quota := float64(w.duty.Quota)
		if by == static {
			quota /= float64(w.limiter.FleetSize())
		}
		l = rate.NewLimiter(rate.Limit(quota/w.duty.Window.Seconds()), int(quota))
		w.fallbacks[by][key] = l
	}
	return l
}
