package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/measure"
	"github.com/tierlimit/tierlimit/embedded"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/plan"
	"github.com/tierlimit/tierlimit/tiered"
)

const planUsage = `Usage: tierlimit plan [flags]

Shows what each way to enforce a limit costs and what it can let through, and which one
is chosen for a need.

Flags:
`

// planFlags is the command line of plan.
type planFlags struct {
	limit     limit.Limit
	keys      int64
	nameBytes int
	holds     int
	need      plan.Need
	redis     string
	json      bool
}

func parsePlanFlags(args []string, stdout io.Writer) (planFlags, error) {
	f := planFlags{limit: limit.PerMinute(1000)}
	set := newFlags("plan")
	limitFlag(set, &f.limit, "the limit for each key, as `QUOTA/WINDOW` (default 1000/1m)")
	set.Int64Var(&f.keys, "keys", 1_000_000, "`number` of keys that are in use at once")
	set.IntVar(&f.nameBytes, "name", plan.DefaultNameBytes, "`bytes` of a key's name in Redis")
	set.IntVar(&f.holds, "holds", 0, "`number` of holds that each key has open, for costs that are known afterwards")
	needFlags(set, &f.need)
	redisFlag(set, &f.redis, " to measure on")
	set.BoolVar(&f.json, "json", false, "print JSON")
	if err := parseFlags(set, args, planUsage, 0, stdout); err != nil {
		return f, err
	}
	switch {
	case f.keys < 1 || f.keys > 1e12:
		return f, usageError{fmt.Errorf("-keys %d: must be between 1 and 1e12", f.keys)}
	case f.nameBytes < 1 || f.nameBytes > 1024:
		return f, usageError{fmt.Errorf("-name %d: must be between 1 and 1024", f.nameBytes)}
	case f.holds < 0 || f.holds > 1000:
		return f, usageError{fmt.Errorf("-holds %d: must be between 0 and 1000, which is the most that a key can have", f.holds)}
	case f.holds > 0 && f.limit.IsConcurrent():
		return f, usageError{fmt.Errorf("-holds %d: the limit %v is a concurrency limit, whose units are held until they are released", f.holds, f.limit)}
	}
	f.need.NameBytes = f.nameBytes
	if f.need.Stated() {
		if err := f.need.Validate(); err != nil {
			return f, usageError{err}
		}
	}
	return f, nil
}

// planned is the JSON form of a table of candidates.
type planned struct {
	Limit      string         `json:"limit"`
	Keys       int64          `json:"keys"`
	Redis      string         `json:"redis"`
	Candidates []plannedEntry `json:"candidates"`
	Holds      int            `json:"holds,omitempty"`
	// HoldsBytes are the bytes of a key's open holds, which come on top of each candidate's bytes.
	HoldsBytes int64  `json:"holds_bytes,omitempty"`
	Picks      []pick `json:"picks"`
}

// plannedEntry is a candidate and its costs. Times are the server's CPU time, measured on the given
// Redis; without a given Redis there are none. Bytes are also measured there, except for very large
// logs. Otherwise bytes are calculated.
type plannedEntry struct {
	Configuration string  `json:"configuration"`
	WorstCase     int64   `json:"worst_case"`
	WithDebt      int64   `json:"with_debt,omitempty"` // most units of a key if holds are settled with more; for -holds
	Above         float64 `json:"above"`               // part of the limit
	Late          float64 `json:"late"`                // part of the window
	BytesAtRest   int64   `json:"bytes_at_rest"`
	BytesFull     int64   `json:"bytes_full"`
	TotalAtRest   int64   `json:"total_at_rest"`
	TotalFull     int64   `json:"total_full"`
	CPU           string  `json:"cpu"`
	AllowedMicros float64 `json:"allowed_us,omitempty"`
	DeniedMicros  float64 `json:"denied_us,omitempty"`
}

// pick is the configuration that is chosen for a need. Error says why none is.
type pick struct {
	Need          string `json:"need"`
	Configuration string `json:"configuration,omitempty"`
	BytesFull     int64  `json:"bytes_full,omitempty"`
	WorstCase     int64  `json:"worst_case,omitempty"`
	Why           string `json:"why,omitempty"`
	Error         string `json:"error,omitempty"`
}

func runPlan(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f, err := parsePlanFlags(args, stdout)
	if err != nil {
		return err
	}
	server, err := findRedis(f.redis, stderr)
	if err != nil {
		return err
	}
	defer server.stop()
	client := redis.NewClient(server.options)
	defer client.Close()
	table := planned{Limit: f.limit.String(), Keys: f.keys, Redis: server.shown, Holds: f.holds, HoldsBytes: plan.HoldsBytes(f.holds, f.nameBytes)}
	if table.Picks, err = picks(f); err != nil {
		return err
	}
	if !f.json {
		if err := printPicks(stdout, table, f); err != nil {
			return err
		}
	}
	if table.Candidates, err = costs(ctx, client, f, stderr); err != nil {
		return fmt.Errorf("measuring on %s: %w", server.shown, explained(err))
	}
	if f.json {
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(table); err != nil {
			return err
		}
		return unmet(f, table.Picks)
	}
	if err := printCandidates(stdout, table); err != nil {
		return err
	}
	printHeld(stdout, table, f)
	return unmet(f, table.Picks)
}

// unmet returns an error if a need was stated and no configuration meets it.
func unmet(f planFlags, picks []pick) error {
	if f.need.Stated() && picks[0].Error != "" {
		return errors.New(picks[0].Error)
	}
	return nil
}

// costs returns the costs of each candidate, measured on a given Redis or otherwise calculated.
func costs(ctx context.Context, client *redis.Client, f planFlags, stderr io.Writer) (entries []plannedEntry, err error) {
	candidates, err := plan.Candidates(f.limit)
	if err != nil {
		return nil, err
	}
	bar := newProgress(stderr, len(candidates))
	defer bar.finish()
	for _, c := range candidates {
		bar.describe(c.String())
		var cost measure.Cost
		if f.redis != "" {
			if cost, err = measure.On(ctx, client, c, f.nameBytes); err != nil {
				return nil, fmt.Errorf("%v: %w", c, err)
			}
		}
		if cost.AtRest == 0 {
			cost.AtRest = c.AtRest(f.nameBytes)
		}
		if cost.Full == 0 {
			cost.Full = c.Full(f.nameBytes)
		}
		entry := plannedEntry{
			Configuration: c.String(), WorstCase: c.WorstCase(), Above: c.Above(), Late: c.Late(),
			BytesAtRest: cost.AtRest, BytesFull: cost.Full,
			TotalAtRest: cost.AtRest * f.keys, TotalFull: cost.Full * f.keys,
			CPU: c.CPU().String(), AllowedMicros: micros(cost.Allowed), DeniedMicros: micros(cost.Denied),
		}
		if f.holds > 0 {
			entry.WithDebt = c.MostWithDebt()
		}
		entries = append(entries, entry)
		bar.add(1)
	}
	return entries, nil
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()/10) / 100 }

// picks returns the choice for the stated need or, if none is stated, for several tolerances.
func picks(f planFlags) (all []pick, err error) {
	needs := []plan.Need{f.need}
	if !f.need.Stated() {
		unstated, err := automatic(f.limit)
		if err != nil {
			return nil, err
		}
		all = append(all, pick{
			Need: "nothing stated", Configuration: unstated.Candidate.String(),
			BytesFull: unstated.Full(f.nameBytes), WorstCase: unstated.WorstCase(), Why: unstated.Why,
		})
		if needs = tolerances(); f.limit.IsConcurrent() {
			needs = nil // there is only one algorithm, whatever is needed
		}
	}
	for _, n := range needs {
		n.NameBytes = f.nameBytes
		p, err := plan.Choose(f.limit, n)
		switch {
		case errors.Is(err, plan.ErrUnmet):
			all = append(all, pick{Need: n.String(), Error: err.Error()})
		case err != nil:
			return nil, err
		default:
			all = append(all, pick{Need: n.String(), Configuration: p.Candidate.String(), BytesFull: p.BytesFull, WorstCase: p.WorstCase(), Why: p.Why})
		}
	}
	return all, nil
}

// tolerances returns typical needs, beginning with the strictest.
func tolerances() []plan.Need {
	return []plan.Need{
		{Above: plan.AtMost(0), Late: plan.AtMost(0)},
		{Above: plan.AtMost(0), Late: plan.AtMost(0.01)},
		{Above: plan.AtMost(0), Late: plan.AtMost(0.05)},
		{Above: plan.AtMost(0), Late: plan.AtMost(0.25)},
		{Above: plan.AtMost(0.1), Late: plan.AtMost(1)},
		{Above: plan.AtMost(0.5), Late: plan.AtMost(0.5)},
		{Above: plan.AtMost(1)},
		{Bytes: 200},
		{Bytes: 300},
		{Bytes: 1000},
	}
}

// automatic returns the choice of a rule that names no algorithm and no need.
func automatic(l limit.Limit) (plan.Plan, error) {
	limiter, err := idleLimiter()
	if err != nil {
		return plan.Plan{}, err
	}
	defer func() { _ = limiter.Close() }() // an error is harmless: the stand-in and its fleet end with the limiter
	rule, err := limiter.Rule("plan", l)
	if err != nil {
		return plan.Plan{}, err
	}
	return rule.Plan(), nil
}

// idleLimiter returns a limiter that decides nothing. It uses no Redis, in which it would leave the
// fleet's generation for a year.
func idleLimiter() (*tiered.Limiter, error) {
	return embedded.Open(tiered.Logger(slog.New(slog.DiscardHandler)), tiered.LedgerKeys(1), tiered.RememberDenials(0))
}
