package outage

// change is a change of a shard's state; or without a shard, of which are in use.
type change struct {
	shard *Shard
	to    State
}

// changesKept is how many changes may wait to be told.
const changesKept = 256

// changed has a change told. It never waits.
func (s *Shard) changed(to State) {
	s.all.tell(change{s, to})
}

func (l *Shards) tell(c change) {
	select {
	case l.changes <- c:
	default:
	}
}

// tellChanges runs in the background: it logs each shard's changes, and tells who wants
// to know of the limiter's.
func (l *Shards) tellChanges() {
	told := Healthy
	for {
		select {
		case <-l.Context.Done():
			return
		case c := <-l.changes:
			if c.shard != nil {
				c.shard.log(c.to)
				c.shard.told = c.to
			}
			state := Healthy
			for _, s := range l.InUse() {
				state = worse(state, s.told)
			}
			if state != told && l.Changed != nil {
				l.Changed(state)
			}
			told = state
		}
	}
}

func (s *Shard) log(to State) {
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
func (s *Shard) warn(kind, message string, args ...any) {
	s.all.Log.Warn(s.kind(kind), message, append(args, s.name()...)...)
}

func (s *Shard) info(kind, message string, args ...any) {
	s.all.Log.Info(s.kind(kind), message, append(args, s.name()...)...)
}
