// Package study runs traffic against every candidate configuration, with the models.
package study

import (
	"context"
	"fmt"

	"github.com/tierlimit/tierlimit/internal/simulate"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/plan"
	"github.com/tierlimit/tierlimit/remote"
)

// Point is a candidate, its decisions, and the memory that a key of the traffic takes.
type Point struct {
	plan.Candidate
	*simulate.Result
	Traffic *simulate.Traffic
	// BytesPerKey is the mean over the traffic's keys, each of them at its fullest.
	BytesPerKey float64
}

// WrongPart returns the part of the requests that were decided otherwise than by the exact log.
func (p Point) WrongPart() float64 {
	return float64(p.Wrong.Total()) / float64(max(1, p.Traffic.Requests()))
}

// Points runs the traffic that of returns for each candidate. progress is called with numbers of
// requests done, and may be called by several goroutines at once. describe is called before each
// candidate.
func Points(ctx context.Context, candidates []plan.Candidate, of func(plan.Candidate) *simulate.Traffic, describe func(string), progress func(int)) ([]Point, error) {
	var points []Point
	sizes := newSizes()
	for _, c := range candidates {
		describe(c.String())
		p := Point{Candidate: c, Traffic: of(c)}
		var err error
		if p.Result, err = p.Traffic.Run(ctx, c.Limit, c.Algorithm, progress); err != nil {
			return nil, fmt.Errorf("%v: %w", c, err)
		}
		p.BytesPerKey = sizes.mean(p)
		points = append(points, p)
	}
	return points, nil
}

// sizes caches the lengths of the keys' names and how full the keys became.
type sizes struct {
	traffic *simulate.Traffic
	names   []int
	peaks   []int64
}

func newSizes() *sizes { return &sizes{} }

func (s *sizes) mean(p Point) float64 {
	if s.traffic != p.Traffic {
		s.traffic = p.Traffic
		s.names, s.peaks = nameLengths(p.Traffic), p.Traffic.Peaks(p.Limit)
	}
	total := int64(0)
	for key, peak := range s.peaks {
		total += p.Bytes(max(1, peak), s.names[key])
	}
	return float64(total) / float64(max(1, len(s.peaks)))
}

// nameLengths returns the lengths of the keys' names in Redis.
func nameLengths(t *simulate.Traffic) []int {
	lengths := make([]int, t.Keys())
	keys, err := remote.NewKeyspace("tl")
	if err != nil {
		return lengths // 0 stands for the default length; this cannot happen, because the prefix is valid
	}
	for key := range lengths {
		lengths[key] = len(keys.Key("report", remote.NewUserKey(t.Name(key))))
	}
	return lengths
}

// Best returns the point of a configuration, found by its algorithm and burst.
func Best(points []Point, c plan.Candidate) (Point, bool) {
	for _, p := range points {
		if p.Algorithm == c.Algorithm && p.Limit.Quota() == c.Limit.Quota() && (p.Algorithm != limit.GCRA() || p.Limit.Burst() == c.Limit.Burst()) {
			return p, true
		}
	}
	return Point{}, false
}
