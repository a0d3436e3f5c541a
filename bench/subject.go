package main

import "context"

// contender is something to be measured. It is opened anew for each workload.
type contender struct {
	name string
	role role
	open opener
}

// role is what a contender is in a comparison.
type role int

const (
	ours  role = iota
	peer       // another limiter for a fleet
	floor      // does less than such a limiter does
)

// opener prepares a contender for a workload: connections, scripts, rules.
type opener func(ctx context.Context, e environment, w *workload) (*subject, error)

// environment is what subjects are opened with.
type environment struct {
	url   string
	nodes []string // of a Cluster, in place of url: "host:port" each
	pool  int
	fleet string // the prefix of our limiters' keys; "": any
}

// subject is a contender opened for one workload. All callers share it.
type subject struct {
	contender
	// decides has one function for each instance of the limiter; callers are
	// spread over them evenly.
	decides []decide
	// perCall is how many decisions one call makes.
	perCall int
	// timeEvery is how many calls there are to one that is timed: a clock is read
	// faster than Redis answers, but not faster than a look into memory.
	timeEvery int
	// sends are the commands that the client sends to decide something. What
	// scripts call is counted under the same names, so none of these may be among
	// what the subject's scripts call.
	sends []string
	// stateless: it makes no difference whether a key was used before.
	stateless bool
	// use charges many units of a key at once; nil if the limiter cannot.
	use func(ctx context.Context, key string, units int) error
	// opened says how often a circuit breaker has opened so far; nil if there is
	// none.
	opened func() int
	close  func() error
}

// decide makes a decision, or several of the same key.
type decide func(ctx context.Context, key string) (outcome, error)

// overRedis is a subject of one instance that makes one trip per call.
func overRedis(d decide, close func() error) *subject {
	return &subject{decides: []decide{d}, perCall: 1, timeEvery: 1, sends: []string{"fcall", "evalsha", "eval"}, close: close}
}

// sampleEvery is the timeEvery of what happens in process.
const sampleEvery = 1024

// inProcess is a subject that makes no trips.
func inProcess(d decide, close func() error) *subject {
	return &subject{decides: []decide{d}, perCall: 1, timeEvery: sampleEvery, close: close}
}

// outcome is what came of a call.
type outcome int

const (
	allowed outcome = iota
	denied
	// degraded: decided without Redis, because it was lost or too slow.
	degraded
	failed
	outcomes
)

func (o outcome) String() string {
	return [...]string{"allowed", "denied", "degraded", "failed"}[o]
}

// verdict is what came of a decision.
func verdict(allow bool) outcome {
	if allow {
		return allowed
	}
	return denied
}
