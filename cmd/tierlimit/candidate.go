package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// candidate is an algorithm to replay, as written on the command line: with its parameters. GCRA's burst is
// a part of the limit.
type candidate struct {
	name      string
	algorithm limit.Algorithm
	burst     string // "10%" or "25"; "" keeps the limit's own burst
}

func parseCandidate(s string) (candidate, error) {
	name, burst, hasBurst := strings.Cut(s, ":burst=")
	a, err := limit.ParseAlgorithm(name)
	switch {
	case err != nil:
		return candidate{}, err
	case a.IsAutomatic():
		return candidate{}, fmt.Errorf("%q cannot be compared, because it stands for one of the others: name sliding-log, sliding-counter, gcra or fixed-window", s)
	case hasBurst && burst == "":
		return candidate{}, fmt.Errorf("%q: the burst is missing; write it like gcra:burst=10%% or gcra:burst=25", s)
	case hasBurst && a != limit.GCRA():
		return candidate{}, fmt.Errorf("%q: only gcra has a burst", s)
	}
	c := candidate{name: a.String(), algorithm: a, burst: burst}
	if hasBurst {
		c.name = s
		_, err = c.limit(limit.PerMinute(100))
	}
	return c, err
}

// limit returns l with the candidate's burst.
func (c candidate) limit(l limit.Limit) (limit.Limit, error) {
	if c.burst == "" {
		return l, nil
	}
	number, percent := strings.CutSuffix(c.burst, "%")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 {
		return l, fmt.Errorf("burst %q is neither a positive number of units nor a percentage like 10%%", c.burst)
	}
	if percent {
		n = (l.Quota()*min(n, (math.MaxInt64-99)/l.Quota()) + 99) / 100 // rounded up, as by plan
	}
	l = l.WithBurst(n)
	return l, l.Validate()
}

// check returns an error if the candidate cannot enforce a limit: for example, a log cannot hold a million units.
func (c candidate) check(l limit.Limit) error {
	l, err := c.limit(l)
	if err == nil {
		_, err = remote.NewRule(l, c.algorithm)
	}
	return err
}
