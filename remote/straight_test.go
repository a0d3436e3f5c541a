package remote

import (
	"fmt"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// The script settles common holds straight through. The answers, and the values left in Redis, are those of the
// general path, which a peek in front of the settlement leads to: while time passes, when Redis's clock has stepped
// back, and afterwards, when the key's own clock is ahead.
func TestSettlementsStraightThroughAreLikeOthers(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	script := NewScript(client)
	const window = int64(60_000_000)
	start := int64(epoch) - epoch%window
	for _, a := range configurations() {
		rule, shorter := newRule(t, limit.Per(40, time.Minute).WithBurst(40), a), newRule(t, limit.Per(40, 30*time.Second).WithBurst(40), a)
		for _, joined := range []bool{false, true} {
			for _, used := range []int64{0, 1, 4} {
				// When other units were charged after the holds (if negative: before, and the window is now shorter), when the clock stepped back, and when the holds are settled.
				for _, when := range [][3]int64{{0, 0, 10}, {10, 0, 10}, {10, 0, 5}, {10, 4, 20}, {10, 0, window - 1}, {10, 0, window + 1}, {-10, 0, 10}} {
					settled := func(first ...Entry) string {
						rule := rule
						key := redistest.Prefix() + "k"
						run := func(after int64, entries ...Entry) []Reply {
							t.Helper()
							for i := range entries {
								entries[i].Key = key
							}
							replies, err := script.Run(t.Context(), entries, start+after)
							if err != nil {
								t.Fatal(err)
							}
							return replies
						}
						peek := Entry{Rule: rule, Operation: lua.Peek, Cost: 1}
						if when[0] > 0 {
							run(0, holdEntry("", rule, lua.Hold, 1, 4))
							run(0, holdEntry("", rule, lua.Hold, 2, 4))
							run(when[0], Entry{Rule: rule, Cost: 3})
						} else {
							run(0, Entry{Rule: rule, Cost: 3})
							run(0, holdEntry("", rule, lua.Hold, 1, 4))
							run(0, holdEntry("", rule, lua.Hold, 2, 4))
						}
						if when[1] > 0 {
							run(when[1], peek)
						}
						if when[0] < 0 { // the rule has got a shorter window
							rule, peek.Rule = shorter, shorter
							for i := range first {
								first[i].Rule = shorter
							}
						}
						settle := holdEntry("", rule, lua.Settle, 1, used)
						if other := holdEntry("", rule, lua.Settle, 2, 1); joined && !settle.joinHold(&other) {
							t.Fatal("they share no entry")
						}
						replies := run(when[2], append(first, settle)...)
						after := run(when[2], peek)
						return fmt.Sprintf("%+v, then %+v; %x", replies[len(replies)-1], after[0], client.Get(t.Context(), key+":holds").Val())
					}
					straight, general := settled(), settled(Entry{Rule: rule, Operation: lua.Peek, Cost: 1})
					if straight != general {
						t.Errorf("%v, joined %v, %d used, at %v:\n%s, in general\n%s", a, joined, used, when, straight, general)
					}
				}
			}
		}
	}
}

// Law 1: what was read of a key for a denial does not count any more when later entries of the batch have charged the
// key: every entry is decided as if it had come alone.
func TestLaw1EntriesAfterADenialSeeLaterCharges(t *testing.T) {
	script := NewScript(redistest.Shared(t).Client(t))
	const start = int64(epoch) - int64(epoch)%60_000_000
	for _, a := range configurations() {
		large, small := newRule(t, limit.PerMinute(10).WithBurst(10), a), newRule(t, limit.PerMinute(8).WithBurst(8), a)
		for _, denied := range []Entry{{Rule: large, Cost: 5}, {Rule: large, Cost: 3}, {Rule: small, Cost: 1}} {
			key := redistest.Prefix() + "k"
			entries := []Entry{
				{Rule: large, Cost: 8}, {Rule: large, Key: key + "a", Cost: 1},
				denied, {Rule: large, Key: key + "b", Cost: 1},
				{Rule: large, Cost: 2}, {Rule: large, Key: key + "c", Cost: 1},
				{Rule: large, Operation: lua.TakeUpTo, Cost: 5},
			}
			run := func(key string, entries ...Entry) (outcomes []string) {
				t.Helper()
				for i := range entries {
					if entries[i].Key == "" {
						entries[i].Key = key
					}
				}
				replies, err := script.Run(t.Context(), entries, start)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range replies {
					outcomes = append(outcomes, fmt.Sprintf("%v, %d granted, %d left, again after %d and %d", r.Status, r.Granted, r.Remaining, r.RetryAfter, r.NextAfter))
				}
				return outcomes
			}
			var alone []string
			for _, e := range entries {
				if e.Key != "" {
					e.Key += "alone"
				}
				alone = append(alone, run(key+"alone", e)...)
			}
			together := run(key, entries...)
			for i := range entries {
				if together[i] != alone[i] {
					t.Errorf("%v, %d units denied: entry %d: %s; alone: %s", a, denied.Cost, i, together[i], alone[i])
				}
			}
		}
	}
}

// Law 7: a cost above the limit, which no rule sends, is denied straight through as by the general path, to which a peek
// in front leads. In a batch it spoils nothing of the rest.
func TestLaw7ACostAboveTheLimitSpoilsNoBatch(t *testing.T) {
	script := NewScript(redistest.Shared(t).Client(t))
	const start, window = int64(epoch), int64(60_000_000)
	for _, a := range configurations() {
		rule := newRule(t, limit.Per(10, time.Minute).WithBurst(10), a)
		for _, cost := range []int64{11, 200} {
			for _, used := range []int64{0, 3, 10} {
				for _, after := range []int64{1, 2 * window} {
					key, other := redistest.Prefix()+"k", redistest.Prefix()+"other"
					run := func(now int64, entries ...Entry) []Reply {
						t.Helper()
						replies, err := script.Run(t.Context(), entries, now)
						if err != nil {
							t.Fatalf("%v, cost %d, %d used, after %d µs: %v", a, cost, used, after, err)
						}
						return replies
					}
					if used > 0 {
						run(start, Entry{Key: key, Rule: rule, Cost: used})
					}
					above, one := Entry{Key: key, Rule: rule, Cost: cost}, Entry{Key: other, Rule: rule, Cost: 1}
					peek := Entry{Key: key, Rule: rule, Operation: lua.Peek, Cost: 1}
					alone, batch, general := run(start+after, above)[0], run(start+after, one, above, one), run(start+after, peek, above)[1]
					if alone.Status != Denied || alone != general || batch[1] != general || batch[0].Status != Allowed || batch[2].Status != Allowed {
						t.Errorf("%v, cost %d, %d used, after %d µs: %+v alone, %+v in a batch, %+v in general", a, cost, used, after, alone, batch, general)
					}
				}
			}
		}
	}
}
