package ledger

import (
	"testing"
	"time"

	"github.com/dgraph-io/ristretto/v2"
)

// BenchmarkLedger measures a decision from the ledger, and for comparison a lookup in a cache plus a look at the
// clock. A decision should take at most 1.5 times as long as these two.
func BenchmarkLedger(b *testing.B) {
	const keys = 1 << 16
	l := New[string](keys)
	start := time.Now()
	o := Outage{Number: 1, Fleet: 4}
	accounts := make([]Account[string], keys)
	cache, err := ristretto.NewCache(&ristretto.Config[uint64, int64]{NumCounters: 10 * keys, MaxCost: 2 * keys, BufferItems: 64})
	if err != nil {
		b.Fatal(err)
	}
	defer cache.Close()
	for i := range accounts {
		a := &accounts[i]
		*a = Account[string]{Hash: uint64(i+1) * 0x9e3779b97f4a7c15, Window: time.Minute, Quota: 1000, Key: "key"}
		l.Learn(a, 0, Known{Granted: 100, Free: 0, Capacity: 1000, Sliding: true})
		cache.Set(a.Hash, 1, 1)
	}
	cache.Wait()
	b.Run("clock and ristretto Get", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			_ = time.Since(start)
			cache.Get(accounts[i*7919%keys].Hash)
		}
	})
	for name, call := range map[string]func(a *Account[string], now int64){
		"Take, denied":  func(a *Account[string], now int64) { l.Take(a, o, now, 101) },
		"Take, granted": func(a *Account[string], now int64) { l.Take(a, o, now, 1) },
		"Learn":         func(a *Account[string], now int64) { l.Learn(a, now, Known{1, 10, 1000, true}) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				call(&accounts[i*7919%keys], int64(time.Since(start)))
			}
		})
	}
}
