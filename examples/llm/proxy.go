package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// limits are the limits of a tenant; budget is the limit of an organization.
type limits struct {
	requests, tokens, budget, streams int64
	expected                          int64 // the expected number of tokens in an answer
	life, slotTTL                     time.Duration
}

var defaults = limits{
	requests: 60, tokens: 10_000, budget: 1_000_000, streams: 4,
	expected: 200, life: 15 * time.Second, slotTTL: 5 * time.Second,
}

// proxy passes requests on to the model, within the limits.
type proxy struct {
	limiter                           *tiered.Limiter
	requests, tokens, budget, streams *tiered.Rule
	limits                            limits
	model                             string         // URL of the model
	underWay                          sync.WaitGroup // counts the requests under way
}

// shortestLife and longestLife are the bounds of how long a hold may last.
const shortestLife, longestLife = 100 * time.Millisecond, 24 * time.Hour

func newProxy(limiter *tiered.Limiter, l limits, model string) (*proxy, error) {
	switch {
	case l.life < shortestLife || l.life > longestLife:
		return nil, fmt.Errorf("-life is %v, must be between %v and %v", l.life, shortestLife, longestLife)
	case l.expected < 1:
		return nil, fmt.Errorf("-expected is %d, must be at least 1", l.expected)
	}
	p := &proxy{limiter: limiter, limits: l, model: model}
	var errs [4]error
	p.requests, errs[0] = limiter.Rule("requests", limit.PerMinute(l.requests))
	// If this process dies, the units that it held of tokens are given back, because its answers
	// reached nobody. But the model's owner sends a bill for them, so budget keeps the estimate.
	p.tokens, errs[1] = limiter.Rule("tokens", limit.PerMinute(l.tokens), tiered.Unsettled(tiered.GiveBack))
	p.budget, errs[2] = limiter.Rule("budget", limit.PerCalendar(l.budget, limit.CalendarMonth, time.UTC), tiered.Unsettled(tiered.Keep))
	p.streams, errs[3] = limiter.Rule("streams", limit.Concurrent(l.streams), tiered.SlotTTL(l.slotTTL))
	return p, errors.Join(errs[:]...)
}

func (p *proxy) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /complete", p.complete)
	return mux
}

// complete lets the model complete the prompt in the body, with at most ?max= tokens.
func (p *proxy) complete(w http.ResponseWriter, r *http.Request) {
	p.underWay.Add(1)
	defer p.underWay.Done()
	tenant := r.Header.Get("X-Tenant") // stands for your own authentication
	organisation, _, found := strings.Cut(tenant, "/")
	if !found || organisation == "" {
		http.Error(w, "no valid tenant: send the header X-Tenant: organisation/tenant", http.StatusUnauthorized)
		return
	}
	prompt, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<16))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	most, err := mostTokens(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	estimate := countTokens(prompt) + min(most, p.limits.expected)
	requests := []tiered.Request{
		{Rule: p.requests, Key: tenant, Cost: 1},
		{Rule: p.tokens, Key: tenant, Cost: estimate, Hold: p.limits.life},
		{Rule: p.budget, Key: organisation, Cost: estimate, Hold: p.limits.life},
		{Rule: p.streams, Key: tenant, Cost: 1},
	}
	grants, decisions, err := p.limiter.TakeAll(r.Context(), requests...)
	switch {
	case errors.Is(err, limit.ErrCostExceedsLimit):
		http.Error(w, "larger than what is ever granted", http.StatusRequestEntityTooLarge)
		return
	case err != nil: // the client has gone, or the program is ending
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	case grants == nil:
		deny(w, requests, decisions)
		return
	}
	// The client may hang up at any time. What the client used is settled in any case.
	always := context.WithoutCancel(r.Context())
	defer grants.End(always) // gives everything back if the model used nothing; does nothing after Settle
	used, broken := p.pass(w, r, prompt, most, grants)
	if used > 0 {
		if err := grants.Settle(always, used); err != nil {
			log.Print("settling: ", err)
		}
	}
	if broken != nil && r.Context().Err() == nil { // the client is still there
		log.Print("an answer was cut off: ", broken)
		panic(http.ErrAbortHandler) // so that the client does not take the answer for a complete one
	}
}

// errStreamLost cuts off an answer whose stream slot may belong to another process by now.
var errStreamLost = errors.New("its stream is lost")

// pass passes the model's answer on. It returns the number of tokens used, and the error that cut the
// answer off.
func (p *proxy) pass(w http.ResponseWriter, r *http.Request, prompt []byte, most int64, grants tiered.Grants) (used int64, broken error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	go p.keep(ctx, cancel, grants)
	ask, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s/complete?max=%d", p.model, most), bytes.NewReader(prompt))
	if err != nil {
		http.Error(w, "the model cannot be asked", http.StatusInternalServerError)
		return 0, nil
	}
	answer, err := http.DefaultClient.Do(ask)
	if err != nil {
		http.Error(w, "the model does not answer", http.StatusBadGateway)
		return 0, nil
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		http.Error(w, "the model refuses: "+answer.Status, http.StatusBadGateway)
		return 0, nil
	}
	w.Header().Set("Content-Type", "text/event-stream")
	used = countTokens(prompt)
	out := http.NewResponseController(w)
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		event, isToken := strings.CutPrefix(lines.Text(), "data: ")
		if !isToken {
			continue
		}
		used++ // counted whether or not the token reaches the client
		fmt.Fprintf(w, "data: %s\n\n", event)
		if err := out.Flush(); err != nil {
			return used, err
		}
	}
	if err := lines.Err(); err != nil {
		return used, cmp.Or(context.Cause(ctx), err)
	}
	return used, nil
}

// keep extends the holds for as long as the answer streams. It ends the answer if the stream's slot is
// lost, for example after a pause of this process: another process may then have the slot.
func (p *proxy) keep(ctx context.Context, end func(error), grants tiered.Grants) {
	again := time.NewTicker(p.limits.life / 3)
	defer again.Stop()
	told := "" // the last error that was logged
	for {
		select {
		case <-ctx.Done():
			return
		case <-grants[3].Slot.Lost():
			end(errStreamLost)
			return
		case <-again.C:
			// There are two more attempts before the hold ends. A hold that ends nevertheless is
			// settled like any other: the units that were used are charged.
			if err := grants.Extend(ctx, p.limits.life); err != nil && ctx.Err() == nil && told != err.Error() {
				told = err.Error()
				log.Print("extending: ", err)
			}
		}
	}
}

// deny tells the client which limits denied the request, and when to try again.
func deny(w http.ResponseWriter, requests []tiered.Request, decisions []limit.Decision) {
	var by []string
	var after time.Duration
	for i, d := range decisions {
		if d.Denied() {
			by, after = append(by, requests[i].Rule.Name()), max(after, d.RetryAfter)
		}
	}
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(after.Seconds()))))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusTooManyRequests)
	_ = json.NewEncoder(w).Encode(map[string]any{"denied_by": by})
}

// mostTokens returns the largest number of tokens that the answer may have.
func mostTokens(query url.Values) (int64, error) {
	text := query.Get("max")
	if text == "" {
		return 100, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > 100_000 {
		return 0, fmt.Errorf("max=%q, must be between 1 and 100000", text)
	}
	return n, nil
}

// countTokens stands for a tokenizer: each word is a token.
func countTokens(prompt []byte) int64 { return int64(len(bytes.Fields(prompt))) }
