package main

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	library "github.com/tierlimit/tierlimit/local/ledger"
)

// The rules that were chosen reach the goals, and those that they were chosen over do
// not: else the choice would have to be made again.
func TestRecommendedRules(t *testing.T) {
	const seeds = 5
	r := recommended().finish().measure(seeds)
	if r.cut > 1.10 || r.inside > 1.10 || r.recovery > 1.10 || r.after > 1.10 || r.least < 0.80 {
		t.Errorf("recommended: %+v", r)
	}
	for _, worse := range []line{
		with("1/fleet", func(p *plan) { p.share = "equal" }),
		with("full limit each", func(p *plan) { p.share = "full" }),
		with("not charged", func(p *plan) { p.charge = "" }),
		with("Redis alone", func(p *plan) { p.bothMustAgree = false }),
	} {
		if r := worse.plan.finish().measure(seeds); max(r.cut, r.inside, r.recovery) <= 1.10 {
			t.Errorf("%s reaches the goals, too: %+v", worse.name, r)
		}
	}
}

// However instances grow and whatever they last heard, quotas sum to 2 - 1/n at most.
func TestQuotasSumToTheirBound(t *testing.T) {
	for _, l := range growth() {
		if l.plan.share != "additive" && l.plan.share != "additive-fading" {
			continue
		}
		p := l.plan.finish()
		// An estimate of own grants may be a little above what they were.
		if r := p.measure(3); r.sum > 2-1/float64(p.fleet)+0.05 {
			t.Errorf("%s: quotas sum to %.2f", l.name, r.sum)
		}
	}
}

// With 16 sub-windows the simulated ledger is the library's.
func TestLedgerIsTheLibrarys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const window = 1600 // µs, whole sub-windows
		p := recommended()
		p.buckets, p.window = 16, window
		in := newInstance(&p, 1, 0)
		ledger := library.New(8)
		account := &library.Account{Hash: 1, Window: window * time.Microsecond, Quota: 100, Key: "key"}
		now := int64(window)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.Int64Range(0, 150).Draw(t, "wait")
			if rapid.Bool().Draw(t, "grant") {
				in.own.add(now)
				ledger.Add(account, now*1000, 1)
			}
			if used, library := in.own.used(now), ledger.Used(account, now*1000); used != library {
				t.Fatalf("%d used at %d, by the library's ledger %d", used, now, library)
			}
		}
	})
}
