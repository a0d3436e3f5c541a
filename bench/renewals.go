package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

const (
	renewalsGroup = "slots-renewed"
	// renewedSlots is the number of slots that one process holds, all of one key, of a hundred keys, or of one key
	// each.
	renewedSlots = 10_000
	// renewedFor is the number of thirds of the TTL in which commands are counted.
	renewedFor = 4
	// renewedBatch is how many keys one command renews.
	renewedBatch = 128
)

// renewedTTL returns the slots' TTL. A third of it is as long as two other measurements, which is enough for a small
// machine to renew slots of a key each.
func (s *settings) renewedTTL() time.Duration { return max(6*s.span, 1500*time.Millisecond) }

var renewedKeys = []int{1, 100, renewedSlots}

// renewal is the cost of keeping the slots of a process.
type renewal struct {
	keys   int
	values [renewalMetrics]float64 // medians
	rounds [][renewalMetrics]float64
}

type renewalMetric int

const (
	commandsPerThird renewalMetric = iota // sent to Redis in each third of the TTL
	batchesPerThird                       // the same, divided by the commands that one renewal of all keys takes
	renewalRedisCPU                       // µs of Redis's CPU in each third of the TTL
	lostSlots
	renewalMetrics
)

var renewalNames = [renewalMetrics]string{"commands_per_third", "batches_per_third", "redis_cpu_us_per_third", "lost_slots"}

func (r renewal) label() string {
	return fmt.Sprintf("%s/1/%s slots of %s", renewalsGroup, thousands(renewedSlots), keysInWords(r.keys))
}

func keysInWords(n int) string {
	if n == 1 {
		return "1 key"
	}
	return thousands(float64(n)) + " keys"
}

// renewals returns the renewals to measure.
func renewals(s settings) (kept []renewal) {
	for _, keys := range renewedKeys {
		if r := (renewal{keys: keys}); s.only.MatchString(r.label()) {
			kept = append(kept, r)
		}
	}
	return kept
}

// renewalsTake returns about how long one measurement takes.
func (s *settings) renewalsTake() time.Duration {
	return 2*time.Second + (renewedFor+1)*s.renewedTTL()/3
}

func (b *bench) measureRenewals(ctx context.Context) error {
	for _, r := range b.renewals {
		for round := range b.settings.Rounds {
			b.progress.say("%s, round %d of %d", r.label(), round+1, b.settings.Rounds)
			v, err := b.measureRenewal(ctx, r.keys, round)
			if err != nil {
				return fmt.Errorf("%s: %w", r.label(), err)
			}
			r.rounds = append(r.rounds, v)
			b.progress.add(b.settings.renewalsTake())
		}
		for m := range renewalMetrics {
			values := make([]float64, len(r.rounds))
			for i := range r.rounds {
				values[i] = r.rounds[i][m]
			}
			r.values[m] = median(values)
			if m == lostSlots {
				r.values[m] = slices.Max(values)
			}
		}
		b.report.Renewals = append(b.report.Renewals, r)
	}
	return nil
}

// measureRenewal holds the slots for some thirds of their TTL, and counts the commands sent meanwhile.
func (b *bench) measureRenewal(ctx context.Context, keys, round int) (v [renewalMetrics]float64, err error) {
	limiter, _, err := openLimiter(b.env)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, limiter.Close()) }()
	ttl := b.settings.renewedTTL()
	rule, err := limiter.Rule("slot", limit.Concurrent(renewedSlots), tiered.SlotTTL(ttl))
	if err != nil {
		return v, err
	}
	names := users(fmt.Sprintf("%s:renewed%d:%d", b.run, round, keys), keys)
	if err := acquireMany(ctx, rule, names); err != nil {
		return v, err
	}
	// The measurement begins just after a renewal has ended, so that each third contains at most one renewal.
	if err := b.awaitRenewal(ctx, ttl); err != nil {
		return v, err
	}
	m := newMeter(b.control)
	lost := limiter.Stats().Slots.Lost
	if err := m.start(ctx); err != nil {
		return v, err
	}
	time.Sleep(renewedFor * ttl / 3)
	if err := m.stop(ctx); err != nil {
		return v, err
	}
	v[commandsPerThird] = decisionCalls(m.commands) / renewedFor
	v[batchesPerThird] = v[commandsPerThird] / math.Ceil(float64(keys)/renewedBatch)
	v[renewalRedisCPU] = m.redisCPU * 1e6 / renewedFor
	v[lostSlots] = float64(limiter.Stats().Slots.Lost - lost)
	return v, ctx.Err()
}

// acquireMany acquires the slots, spread evenly over the keys, from many goroutines. They are released when the
// limiter is closed.
func acquireMany(ctx context.Context, rule *tiered.Rule, keys []string) error {
	const callers = 128
	errs := make([]error, callers)
	var running sync.WaitGroup
	for i := range callers {
		running.Go(func() {
			for n := i; n < renewedSlots && errs[i] == nil; n += callers {
				slot, err := rule.AcquireWait(ctx, keys[n%len(keys)], 1)
				if err == nil && !slot.Held() {
					err = errors.New("a slot is lost already")
				}
				errs[i] = err
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// awaitRenewal returns when a renewal has ended: commands were sent, and then none for a while.
func (b *bench) awaitRenewal(ctx context.Context, ttl time.Duration) error {
	const pause, quiet = 5 * time.Millisecond, 5
	seen, same := math.NaN(), math.MinInt
	for until := time.Now().Add(10 * ttl); time.Now().Before(until); time.Sleep(pause) {
		usage, err := readServerUsage(ctx, b.control)
		if err != nil {
			return err
		}
		n := decisionCalls(usage.commands)
		if same++; n != seen && !math.IsNaN(seen) {
			same = 0
		}
		if seen = n; same >= quiet {
			return nil
		}
	}
	return errors.New("nothing tells Redis that the process is alive")
}

// decisionCalls returns how many times the script that decides was called. A heartbeat calls another script, the only
// one that removes ranges of sorted sets, two in each call.
func decisionCalls(commands map[string]float64) float64 {
	return commands["fcall"] + commands["evalsha"] + commands["eval"] - commands["zremrangebyscore"]/2
}

func (r renewal) MarshalJSON() ([]byte, error) {
	rounds := make([]map[string]float64, len(r.rounds))
	for i := range r.rounds {
		rounds[i] = named(r.rounds[i][:], renewalNames[:])
	}
	return json.Marshal(map[string]any{
		"slots": renewedSlots, "keys": r.keys,
		"median": named(r.values[:], renewalNames[:]), "rounds": rounds,
	})
}

func (r *report) renewalTable() table {
	t := table{title: fmt.Sprintf("%s slots of one process, renewed every third of a TTL of %v", thousands(renewedSlots), r.Settings.renewedTTL()), words: 1,
		head: []string{"", "commands per TTL/3", "renewals of all", "a slot each", "Redis CPU per TTL/3", "lost"}}
	for _, n := range r.Renewals {
		v := n.values
		t.rows = append(t.rows, []string{keysInWords(n.keys), short(v[commandsPerThird]), ratio(v[batchesPerThird]), thousands(renewedSlots),
			duration(v[renewalRedisCPU]), fmt.Sprint(v[lostSlots])})
	}
	return t
}
