package remote

// distance estimates the round trip to Redis: how long an answer takes when Redis has nothing else to do. It is
// guarded by the batcher's lock.
//
// Calls that arrive while a trip is in flight wait for its answer, on average for half of the trip's time. If
// the network takes that time, and not Redis, waiting saves nothing but trips. So while Redis is far away and
// not busy, more trips may be in flight, and calls rarely wait. If Redis gets busy, its answers take longer
// than the round trip does, and calls share trips again, which saves Redis work. TCP Vegas distinguishes a long
// round trip from a queue in the same way (Brakmo and Peterson, 1995).
type distance struct {
	least  int64   // µs that the fastest answer took in the current period
	before int64   // the same for the period before it; 0: there was none
	since  int64   // local time at which the current period began
	usual  float64 // moving average of what answers take, in µs
	known  int     // number of answers, up to knownAfter
}

const (
	// farAway is the round trip, in µs, from which on Redis is far away: on another machine. Processes on the
	// same machine compete for its cores, and sharing trips saves processor time.
	farAway = 150
	// Redis counts as busy if answers take busyPart times as long as the round trip.
	busyPart = 2
	// distancePeriod is the least time, in µs, for which the fastest answer is remembered. Round trips rarely
	// change, and a server that is busy for long must not look far away.
	distancePeriod = 10 * 60 * 1_000_000
	// knownAfter is the number of answers from which on the estimate is used.
	knownAfter = 100
	// averageOver is the number of answers over which the moving average is taken.
	averageOver = 32
)

// answered records how long an answer took, without the time that this process itself was responsible for.
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
	// A single answer that took very long says nothing about other answers.
	d.usual += (float64(min(took, 4*d.roundTrip())) - d.usual) / averageOver
}

// roundTrip returns the round trip, in µs.
func (d *distance) roundTrip() int64 {
	if d.before > 0 {
		return min(d.before, d.least)
	}
	return d.least
}

// isFar reports whether Redis is far away and not busy.
func (d *distance) isFar() bool {
	roundTrip := d.roundTrip()
	return d.known == knownAfter && roundTrip >= farAway && d.usual < busyPart*float64(roundTrip)
}
