package main

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/tierlimit/tierlimit/internal/inspect"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/rulesfile"
)

// rules are those of a rules file, on a limiter that decides nothing.
type rules struct {
	*rulesfile.Rules
	names []string
	close func()
}

// loadRules reads a rules file as a service does, with no Redis.
func loadRules(path string) (*rules, error) {
	limiter, err := idleLimiter()
	if err != nil {
		return nil, err
	}
	r := &rules{close: func() { _ = limiter.Close() }} // nothing is lost by it
	if r.Rules, err = rulesfile.Load(limiter, path, rulesfile.Logger(slog.New(slog.DiscardHandler))); err != nil {
		r.close()
		return nil, err
	}
	for _, rule := range inspect.Of(limiter).Snapshot().Rules {
		r.names = append(r.names, rule.Name)
	}
	return r, nil
}

// limitOf is the limit that the file holds a key to under a rule; of the key "", most keys'.
func (r *rules) limitOf(rule, key string) (limit.Limit, error) {
	found, err := r.Rule(rule)
	if err != nil {
		return limit.Limit{}, err
	}
	return found.For(key).Limit(), nil
}

// problems are what is wrong with a rules file, one by one.
func problems(err error) (all []error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || isProblem(err) || !slices.ContainsFunc(joined.Unwrap(), isProblem) {
		return []error{err} // of the whole file
	}
	for _, e := range joined.Unwrap() {
		all = append(all, problems(e)...)
	}
	return all
}

func isProblem(err error) bool {
	_, ok := err.(*rulesfile.Problem)
	return ok
}

var errNoRedis = errors.New("there is no Redis to look into: give -redis URL, or set $REDIS_URL")

// limitFlags say what limit a rule has, of which Redis does not hold all.
type limitFlags struct {
	limit limit.Limit // of zero: not said
	file  string
}

func (f *limitFlags) check() error {
	if f.file != "" && f.limit != (limit.Limit{}) {
		return usageError{fmt.Errorf("both -rules %s and -limit %v: give one of them", f.file, f.limit)}
	}
	return nil
}
