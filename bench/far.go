package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tierlimit/tierlimit/bench/internal/proxy"
)

// farGroup is the name of the workload on a Redis that is a network away, as of most services.
const farGroup = "far"

const (
	// farAway is how long a network takes each way, in ms. It is toxiproxy, whose least delay that is.
	farAway = 1
	// farRoundTrip is about what a decision then takes, with the proxy's own time.
	farRoundTrip = 2300 * time.Microsecond
)

// behindNetwork is the environment with a network between the server and its clients.
func (e environment) behindNetwork() (environment, proxy.Proxy, error) {
	o, err := clientOptions(e)
	if err != nil {
		return e, proxy.Proxy{}, err
	}
	p, err := proxy.Start(o.Addr)
	if err != nil {
		return e, p, err
	}
	if err = p.Delay(farAway, 0); err == nil {
		e.url, err = onHost(e.url, p.Addr())
	}
	if err != nil {
		p.Stop()
	}
	return e, p, err
}

// driveRandomly makes calls that do not wait for each other, at random moments (a Poisson process):
// as many as have so many callers under way on average, if nobody waits for others.
func driveRandomly(ctx context.Context, s *subject, w *workload, callers int, span time.Duration, ready func() error) (*load, error) {
	random := rand.New(rand.NewPCG(5, uint64(callers)))
	pause := func() time.Duration {
		return time.Duration(random.ExpFloat64() / float64(callers) * float64(farRoundTrip))
	}
	return driveApart(ctx, s, w, 1, pause, span, ready)
}
