package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/page"
	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/replay"
	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/study"
	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/trace"
	"github.com/tierlimit/tierlimit/internal/simulate"
	"github.com/tierlimit/tierlimit/plan"
)

// The number of the report's requests that go through a whole limiter. On the embedded Redis, which is
// slow, the number is smaller.
const (
	tieredRequests         = 30_000
	tieredRequestsEmbedded = 5_000
)

// onRedis lets the real script decide some requests of each configuration, which shows that the models
// are right. It also lets a limiter decide the first requests under the chosen configuration, which
// shows which tier decides.
func (r *reporter) onRedis(ctx context.Context, p *page.Page) error {
	for _, point := range p.Points {
		n, err := study.Check(ctx, r.client, point)
		if err != nil {
			return fmt.Errorf("checking the models on Redis (%s): %w", r.redis, explained(err))
		}
		p.Checked += n
	}
	most := tieredRequests
	if r.flags.redis == "" {
		most = tieredRequestsEmbedded
	}
	first := firstRequests(p.Chosen, most)
	result, err := replay.Run(ctx, replay.Config{
		Trace: first, Limit: p.Chosen.Limit, Instances: 1,
		Client: func() *redis.Client { return redis.NewClient(r.options) },
	}, p.Chosen.Algorithm, replay.Exact(first, p.Chosen.Limit, nil))
	if err != nil {
		return explained(err)
	}
	p.Tiers = &page.Tiers{Requests: first.Len(), Local: result.DecidedLocally, Redis: redisInWords(r)}
	return nil
}

// tryRedis does what onRedis does, for a single request. Otherwise a user without the rights would learn of that only
// when everything else is done, which may take minutes. The embedded Redis needs no rights.
func (r *reporter) tryRedis(ctx context.Context) error {
	if r.flags.redis == "" {
		return nil
	}
	one := simulate.New(func(yield func(int64, string) bool) { yield(time.Now().UnixMicro(), "trial") })
	points, err := study.Points(ctx, r.candidates[:1], func(plan.Candidate) *simulate.Traffic { return one }, func(string) {}, nil)
	if err != nil {
		return err
	}
	return r.onRedis(ctx, &page.Page{Points: points, Chosen: points[0]})
}

func redisInWords(r *reporter) string {
	if r.flags.redis == "" {
		return "the embedded Redis"
	}
	return "the Redis at " + r.redis
}

// lastTime is the end of the time in which a limiter can count, see tiered.VirtualClock.
var lastTime = time.Date(2101, time.January, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// firstRequests returns the first requests of a point's traffic. Made-up loads for long windows last for centuries;
// those of their requests that come after lastTime are left out.
func firstRequests(p study.Point, most int) *trace.Trace {
	var events []trace.Event
	for request := range int32(min(most, p.Traffic.Requests())) {
		if p.Traffic.At(request) >= lastTime {
			break
		}
		events = append(events, trace.Event{At: p.Traffic.At(request), Key: p.Traffic.Name(p.Traffic.KeyOf(request)), Cost: 1})
	}
	return trace.Of(events...)
}

// summary prints the page's main results on the terminal.
func (r *reporter) summary(w io.Writer, p page.Page) error {
	fmt.Fprintf(w, "%s of %s, %s; the real script agreed with the models on all of %s\n\n%v\n",
		page.Count(p.Requests, "request"), page.Count(p.Keys, "key"), page.Count(len(p.Points), "configuration"), page.Count(p.Checked, "request"), p.Plan)
	fmt.Fprintf(w, "Of these requests it decides %.3g %% unlike the exact log, at %.0f bytes a key.\n", 100*p.Chosen.WrongPart(), p.Chosen.BytesPerKey)
	for _, proposal := range p.Proposals {
		fmt.Fprintf(w, "Per %s: %d would have limited %s; %d would have denied %s.\n",
			proposal.ByKeys.Limit.WindowString(), proposal.ByKeys.Limit.Quota(), page.Count(proposal.ByKeys.Affected, "key"),
			proposal.ByRequests.Limit.Quota(), page.Count(proposal.ByRequests.Denied, "request"))
	}
	_, err := fmt.Fprintf(w, "\nwritten to %s\n", r.flags.out)
	return err
}
