package main

import "context"

// contender is a limiter or floor to measure. It is opened anew for each workload.
type contender struct {
	name string
	role role
	open opener
}

// role is the role of a contender in a comparison.
type role int

const (
	ours  role = iota
	peer       // another limiter for a fleet
	floor      // does less than a limiter for a fleet must
)

// opener prepares a contender for a workload: connections, scripts, rules.
type opener func(ctx context.Context, e environment, w *workload) (*subject, error)

// environment is the servers and settings with which subjects are opened.
type environment struct {
	url   string
	nodes []string // addresses in a Cluster, "host:port" each, which replace url
	pool  int
	fleet string // the prefix of our limiters' keys; "": any
}

// subject is a contender opened for one workload. All callers share it.
type subject struct {
	contender
	// decides has one function for each instance of the limiter. Callers are spread evenly over them.
	decides []decide
	// perCall is how many decisions one call makes.
	perCall int
	// timeEvery is the number of calls for each call that is timed. Reading the clock is faster than an answer of
	// Redis, but not faster than a look-up in memory.
	timeEvery int
	// sends are the commands with which the client asks for a decision. Redis counts the commands that scripts call
	// under the same names, so the subject's scripts must not call any of these.
	sends []string
	// stateless means that it makes no difference whether a key was used before.
	stateless bool
	// use charges many units of a key at once; nil if the limiter cannot.
	use func(ctx context.Context, key string, units int) error
	// opened returns how often a circuit breaker has opened so far. It is nil if the subject has no breaker.
	opened func() int
	close  func() error
}

// decide makes a decision, or several decisions for the same key.
type decide func(ctx context.Context, key string) (outcome, error)

// overRedis returns a subject with one instance that makes one trip per call.
func overRedis(d decide, close func() error) *subject {
	return &subject{decides: []decide{d}, perCall: 1, timeEvery: 1, sends: []string{"fcall", "evalsha", "eval"}, close: close}
}

// sampleEvery is the timeEvery of subjects that decide in process.
const sampleEvery = 1024

// inProcess returns a subject that makes no trips.
func inProcess(d decide, close func() error) *subject {
	return &subject{decides: []decide{d}, perCall: 1, timeEvery: sampleEvery, close: close}
}

// outcome is the result of a call.
type outcome int

const (
	allowed outcome = iota
	denied
	// degraded is a decision without Redis, because Redis was lost or too slow.
	degraded
	failed
	outcomes
)

func (o outcome) String() string {
	return [...]string{"allowed", "denied", "degraded", "failed"}[o]
}

// verdict returns the outcome of a decision.
func verdict(allow bool) outcome {
	if allow {
		return allowed
	}
	return denied
}
