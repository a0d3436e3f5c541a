package ledger

import (
	"math/rand"
	"testing"
	"time"
)

// Law 11: while misses are too few for settling, the units that instances grant to requests that missed Redis come
// on top of Redis's grants, and Redis is not charged for them. If requests for all keys miss equally often, the
// extra units are to Redis's grants as misses are to answers. If mostly requests for one key miss, each instance
// stops at the limit, and so does Redis.
func TestLaw11MissesThatBeginNoSettling(t *testing.T) {
	const window, quota, instances = 160 * time.Second, 400, 4
	for _, test := range []struct {
		name        string
		missed      float64
		least, most float64 // of the limit, in any window
	}{
		{"none", 0, 1, 1},
		{"fewer than a fifth", 0.19, 1.1, 1.3},
		{"most of those of one key", 0.8, 3, instances + 1},
		{"nearly all of those of one key", 0.98, 1, 1.3}, // replies that count less than the own grants are ignored
	} {
		rng := rand.New(rand.NewSource(1))
		account := &Account[string]{Hash: 7, Window: window, Quota: quota, Charged: true}
		var fleet [instances]*Ledger[string]
		for i := range fleet {
			fleet[i] = New[string](1)
		}
		var redis, all []int64 // times at which units were granted
		count := func(granted []int64, now int64) (n int64) {
			for i := len(granted) - 1; i >= 0 && granted[i] > now-int64(window); i-- {
				n++
			}
			return n
		}
		most := int64(0)
		for now := noon; now < noon+6*int64(window); now += int64(window) / (6 * quota) { // six times the limit
			in, granted := fleet[rng.Intn(instances)], int64(0)
			if rng.Float64() < test.missed {
				granted = in.Take(account, Outage{Fleet: instances}, now, 1).Granted
			} else {
				if used := count(redis, now); used < quota {
					redis, granted = append(redis, now), 1
				}
				in.Learn(account, now, Known{Granted: granted, Free: quota - count(redis, now), Capacity: quota, Sliding: true})
			}
			if granted > 0 {
				all = append(all, now)
				most = max(most, count(all, now))
			}
		}
		if got := float64(most) / quota; got < test.least || got > test.most {
			t.Errorf("%s: a window has %.2f of the limit, want %v to %v", test.name, got, test.least, test.most)
		}
	}
}
