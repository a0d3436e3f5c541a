package main

import (
	"errors"
	"slices"
	"time"

	"github.com/tierlimit/tierlimit/bench/internal/neighbours"
	"github.com/tierlimit/tierlimit/bench/outage/factor"
	"github.com/tierlimit/tierlimit/limit"
)

const (
	keysAtLimit = 1000 // keys of a scenario of overload, each asked for more than its limit
	burstPart   = 10   // GCRA's bound is the limit and a tenth of it
)

// overload is a load of more requests than Redis can decide, because other clients keep it busy.
type overload struct {
	keep time.Duration // for how long each of them keeps it busy at a time
	rate float64       // requests a second
	gcra bool
}

// overloaded returns a scenario in which Redis is overloaded for as long as an outage lasts in others, and then has time
// for all requests.
func overloaded(name string, o overload) scenario {
	about := "more is asked than a busy Redis can decide; 1,000 keys are asked for three times their limit, a sliding log"
	if o.gcra {
		about = "the same with GCRA and a burst of a tenth of the limit"
	}
	return scenario{name: name, about: about, weights: skewed, crowded: true, overload: &o, duty: o.duty, play: o.play, judge: o.judge}
}

// duty sets a limit at which the rate is Load times what all keys are allowed.
func (o *overload) duty(s settings, d *duty) {
	d.Quota = int64(o.rate * s.Window.Seconds() / keysAtLimit / s.Load)
	d.GCRA = o.gcra
}

func (o *overload) play(f *fleet) error {
	busy := neighbours.Start(f.ctx, f.server.Client(f.bed), neighbours.Sleep(o.keep))
	f.cut = now()
	err := inOrder(o.offer, anOutage)(f)
	f.up = now()
	if err := errors.Join(err, busy.Leave()); err != nil {
		return err
	}
	return inOrder((*fleet).reconnected, windows(1))(f)
}

func (o *overload) offer(f *fleet) error {
	for i, in := range f.instances {
		if err := in.order(order{Rate: o.rate * f.weights[i], Heavy: keysAtLimit}); err != nil {
			return err
		}
	}
	return nil
}

// judge checks the worst window of each key.
func (o *overload) judge(f *fleet, calls []call) {
	most, own := f.mostOfKeys(calls), 1.0
	if o.gcra {
		own += 1.0 / burstPart
	}
	at := func(q float64) float64 { return most[int(q*float64(len(most)-1))] }
	f.check("worst window / limit, of the median key", at(0.5), overloadMedian.times(own), false)
	f.check("worst window / limit, of 99 % of the keys", at(0.99), overloadMost.times(own), false)
	asked, byRedis, without := 0, 0, 0
	for _, c := range calls {
		if c.by == ours && c.at < f.up {
			asked++
			switch {
			case c.tier == limit.TierRedis:
				byRedis++
			case c.tier.Degraded():
				without++
			}
		}
	}
	f.note("limit %d; worst window / limit of the worst key: %.2f", f.Quota, at(1))
	f.note("asked %.0f times a second, which is %.1f times what Redis decided; %.2f of the calls were decided without it",
		float64(asked)/f.Outage.Seconds(), float64(asked)/float64(max(1, byRedis)), float64(without)/float64(max(1, asked)))
}

// mostOfKeys returns the most units in any window, divided by the limit, of each key, in ascending order.
func (f *fleet) mostOfKeys(calls []call) (most []float64) {
	grants := make([][]factor.Grant, keysAtLimit)
	for _, c := range calls {
		if c.allowed && c.by == ours {
			grants[c.key] = append(grants[c.key], factor.Grant{At: c.at, Units: 1})
		}
	}
	for _, g := range grants {
		units, _ := factor.Most(g, f.Window.Microseconds(), f.began, f.end)
		most = append(most, float64(units)/float64(f.Quota))
	}
	slices.Sort(most)
	return most
}

func (b bound) times(factor float64) bound { return bound{b.goal * factor, b.tested * factor} }
