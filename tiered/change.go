package tiered

// change is a change of a shard's state; or without a shard, of which are in use.
type change struct {
	shard *shard
	to    State
}

// changesKept is how many changes may wait to be told.
const changesKept = 256

// changed has a change told. It never waits.
func (s *shard) changed(to State) {
	s.limiter.tell(change{s, to})
}

func (l *Limiter) tell(c change) {
	select {
	case l.changes <- c:
	default:
	}
}

// tellChanges runs in the background: it logs each shard's changes, and tells who wants
// to know of the limiter's.
func (l *Limiter) tellChanges() {
	told := Healthy
	for {
		select {
		case <-l.ctx.Done():
			return
		case c := <-l.changes:
			if c.shard != nil {
				c.shard.log(c.to)
				c.shard.told = c.to
			}
			state := Healthy
			for _, s := range l.shards() {
				state = worse(state, s.told)
			}
			if state != told && l.config.onStateChange != nil {
				l.config.onStateChange(state)
			}
			told = state
		}
	}
}

func (s *shard) log(to State) {
	switch to {
	case Outage:
		s.warn("outage", "Redis counts as lost; decisions are made by the rules' outage policies", "fleet_size", s.fleet.Size(), "error", s.reason())
	case Settling:
		s.info("settling", "until Redis is back for good and knows of all grants, it and this instance's own record must both agree", "fleet_size", s.fleet.Size())
	case Healthy:
		s.info("healthy", "Redis decides again", "fleet_size", s.fleet.Size())
	}
}

// warn and info log what happened to a shard: each kind by itself, and on a Cluster
// saying to which master.
func (s *shard) warn(kind, message string, args ...any) {
	s.limiter.log.warn(s.kind(kind), message, append(args, s.name()...)...)
}

func (s *shard) info(kind, message string, args ...any) {
	s.limiter.log.info(s.kind(kind), message, append(args, s.name()...)...)
}
