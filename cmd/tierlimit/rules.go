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

// rules are the rules of a rules file, on a limiter that decides nothing.
type rules struct {
	*rulesfile.Rules
	names []string
	close func()
}

// loadRules reads a rules file as a service does, but without Redis.
func loadRules(path string) (*rules, error) {
	limiter, err := idleLimiter()
	if err != nil {
		return nil, err
	}
	r := &rules{close: func() { _ = limiter.Close() }} // an error is harmless: nothing is lost
	if r.Rules, err = rulesfile.Load(limiter, path, rulesfile.Logger(slog.New(slog.DiscardHandler))); err != nil {
		r.close()
		return nil, err
	}
	for _, rule := range inspect.Of(limiter).Snapshot().Rules {
		r.names = append(r.names, rule.Name)
	}
	return r, nil
}

// limitOf returns the limit that the file sets for a key under a rule. For the key "", it is the limit
// of most keys.
func (r *rules) limitOf(rule, key string) (limit.Limit, error) {
	found, err := r.Rule(rule)
	if err != nil {
		return limit.Limit{}, err
	}
	return found.For(key).Limit(), nil
}

// problems returns the single problems of a rules file.
func problems(err error) (all []error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || isProblem(err) || !slices.ContainsFunc(joined.Unwrap(), isProblem) {
		return []error{err} // about the whole file
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

var errNoRedis = errors.New("no Redis is given: use -redis URL, or set $REDIS_URL")

// limitFlags are the flags that say what limit a rule has. Redis does not store every part of a limit.
type limitFlags struct {
	limit limit.Limit // zero if not given
	file  string
}

func (f *limitFlags) check() error {
	if f.file != "" && f.limit != (limit.Limit{}) {
		return usageError{fmt.Errorf("both -rules %s and -limit %v are given: give only one of them", f.file, f.limit)}
	}
	return nil
}
