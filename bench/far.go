package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tierlimit/tierlimit/bench/internal/proxy"
)

// farGroup is the name of the workload on a Redis that is a network away, as for most services.
const farGroup = "far"

const (
	// farAway is the network's delay each way, in ms. toxiproxy makes the delay, and cannot make a smaller one.
	farAway = 1
	// farRoundTrip is about how long a decision then takes, including the proxy's own time.
	farRoundTrip = 2300 * time.Microsecond
)

// behindNetwork returns the environment with a slow network between clients and server.
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

// driveRandomly makes calls that do not wait for each other, at random moments (a Poisson process). Their rate is
// such that the given number of callers is in flight on average if no call waits for another.
func driveRandomly(ctx context.Context, s *subject, w *workload, callers int, span time.Duration, ready func() error) (*load, error) {
	random := rand.New(rand.NewPCG(5, uint64(callers)))
	pause := func() time.Duration {
		return time.Duration(random.ExpFloat64() / float64(callers) * float64(farRoundTrip))
	}
	return driveApart(ctx, s, w, 1, pause, span, ready)
}
