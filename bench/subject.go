package main

import "context"

// subject is something that is measured, opened for one workload. All callers
// share it.
type subject struct {
	name string
	// perCall is how many decisions one call makes.
	perCall int
	// timeEvery is how many calls there are to one that is timed: a clock is read
	// faster than Redis answers, but not faster than a look into memory.
	timeEvery int
	// hasState: each key is to be used once before anything is measured.
	hasState bool
	call     func(ctx context.Context, key string) (outcome, error)
	close    func() error
}

// outcome is what came of a call. Only the first is what a subject is measured
// for; a cell with any other is marked.
type outcome int

const (
	asExpected outcome = iota
	// unexpected: denied where the workload never denies, or the reverse.
	unexpected
	// degraded: decided without Redis.
	degraded
	// failed: an error.
	failed
	outcomes
)

func (o outcome) String() string {
	return [...]string{"as expected", "unexpected", "degraded", "failed"}[o]
}

// expect says what came of a decision that should have been as wanted.
func expect(wanted bool) outcome {
	if wanted {
		return asExpected
	}
	return unexpected
}

// group is a set of subjects that are compared on the same workload.
type group struct {
	title    string
	workload workload
	// reference is the name of the subject that all are divided by.
	reference string
	open      []opener
}

// opener prepares a subject for a workload: connections, scripts, rules.
type opener func(ctx context.Context, e environment, w *workload) (*subject, error)

// environment is what subjects are opened with.
type environment struct {
	url  string
	pool int
}

// groups are all that is measured, with keys of this run's own. In process it is
// one key only: a denial is remembered for a second, so that of many keys most
// requests would go to Redis.
func groups(s settings, run string) []group {
	const peer = "redis_rate"
	all := []opener{openGCRA, openLog, openPeer, openEvalsha, openPipeline, openIncr}
	hot, many := hotKey(run), manyKeys(run, s.Keys)
	denied := hotKey(run)
	denied.name = "denied"
	denied.keys = []string{run + ":denied"}
	denied.log = limitOfOne
	return []group{
		{title: "One hot key, always allowed", workload: hot, reference: peer, open: all},
		{title: thousands(float64(s.Keys)) + " keys, uniform, always allowed", workload: many, reference: peer, open: all},
		{title: "One key, always denied, in process", workload: denied, reference: nameRistretto,
			open: []opener{openDenial, openRistretto}},
	}
}
