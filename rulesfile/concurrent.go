package rulesfile

import (
	"strconv"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

const likeConcurrent = "how many units may be held at the same time, like 10"

// concurrent reads a limit of limit.Concurrent.
func (p *problems) concurrent(f field) placedLimit {
	l := placedLimit{at: at(f.value)}
	text, _ := plain(f.value)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		p.unlike(f.value, f.name, likeConcurrent)
		return l
	}
	if l.limit = limit.Concurrent(n); l.limit.Validate() != nil {
		p.add(l.at, l.limit.Validate())
	}
	return l
}

// slotTTL reads how long a process's slots outlive the process.
func (p *problems) slotTTL(f field) tiered.RuleOption {
	const like = "a duration like 10s"
	text, ok := p.text(f, like)
	d, err := time.ParseDuration(text)
	if ok && err != nil {
		p.addf(at(f.value), "slot_ttl is %q, must be %s", text, like)
	}
	return tiered.SlotTTL(d)
}
