package remote

// durations predicts from the last trips how long the next one will take. All times are in µs.
type durations struct {
	last, before int64 // of two trips in turn; of trips that overlap, the one that ended last
	lastEnded    int64 // local time at which last, or the first of the trips that overlap, ended
	next         int64 // how long the next trip is expected to take
}

// ended records a trip. The next one is expected to take as long as the shorter of the last two, because one may be
// slow for many reasons, or as long as the longer one. Trips that overlap count as one: what slows one of them down
// slows down the others, too.
func (d *durations) ended(now, took int64, longer bool) {
	if now-took >= d.lastEnded {
		d.before, d.lastEnded = d.last, now
	}
	d.last = took
	if longer {
		d.next = max(d.before, d.last)
	} else {
		d.next = min(d.before, d.last)
	}
}
