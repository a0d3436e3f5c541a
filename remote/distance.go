package remote

// distance is how far away Redis is: how long its answers take when it has nothing else to do.
// It is guarded by the batcher's lock.
//
// Calls that come while a batch is under way wait for its answer, half of the time that it takes on
// average. If that is the network's time, and not Redis's, waiting brings nothing but fewer batches:
// so while Redis is far away and not busy, some more batches may be under way, and calls rarely
// wait. If Redis gets busy its answers take longer than the way to it does, and calls share batches
// again, which takes work off it. This is how TCP Vegas tells a long way from a queue (Brakmo and
// Peterson, 1995).
type distance struct {
	least  int64   // µs that the fastest answer took since then
	before int64   // and in the period before
	since  int64   // local time
	usual  float64 // µs: a moving average of what answers took
	known  int     // answers, up to knownAfter
}

const (
	// farAway is how long answers take from a server on another machine, in µs, at least. On the
	// same machine all compete for its cores, and what is saved by sharing batches is gained.
	farAway = 150
	// busyPart is how much longer than the way answers take if a server is busy: twice as long.
	busyPart = 2
	// distancePeriod is for how long at least the fastest answer is remembered, in µs: ways change
	// seldom, and a server that is busy must not look far away after a while.
	distancePeriod = 10 * 60 * 1_000_000
	// knownAfter is how many answers must have come before any conclusion is drawn.
	knownAfter = 100
	// averageOver is how many answers the moving average is of.
	averageOver = 32
)

// answered learns from an answer how long the way to Redis and back took, without what this process
// did.
func (d *distance) answered(now, took int64) {
	if now-d.since > distancePeriod {
		d.before, d.least, d.since = d.least, took, now
	}
	if d.least == 0 || took < d.least {
		d.least = took
	}
	if d.usual == 0 {
		d.usual = float64(took)
	}
	d.known = min(d.known+1, knownAfter)
	// One answer that took very long says nothing of others.
	d.usual += (float64(min(took, 4*d.way())) - d.usual) / averageOver
}

// way is how long the way takes, in µs.
func (d *distance) way() int64 {
	if d.before > 0 {
		return min(d.before, d.least)
	}
	return d.least
}

// isFar reports whether Redis is far away, and not busy.
func (d *distance) isFar() bool {
	way := d.way()
	return d.known == knownAfter && way >= farAway && d.usual < busyPart*float64(way)
}
