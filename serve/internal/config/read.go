package config

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"gopkg.in/yaml.v3"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/plan"
	"github.com/tierlimit/tierlimit/tiered"
)

// root is the content of a file.
type root struct {
	at          *yaml.Node
	domain      string
	descriptors []descriptor
}

// descriptor is a descriptor as it stands in the file.
type descriptor struct {
	at             *yaml.Node
	key, value     string
	limit          *rateLimit // nil: none
	descriptors    []descriptor
	shadow, quota  bool
	detailedMetric bool
	valueToMetric  bool
	shareThreshold bool
	metadata       *structpb.Struct
}

type rateLimit struct {
	at              *yaml.Node
	unit            string
	unitAt          *yaml.Node // nil: none
	requestsPerUnit uint32
	unlimited       bool
	name            string
	replaces        []replaced
	multiplier      uint32
	window          time.Duration
	windowAt        *yaml.Node // nil: none
	terms           Terms
	own             *yaml.Node // the first field that envoyproxy/ratelimit does not have; nil: none
	overlay         Place      // the overlay entry that was merged into it; zero: none
}

type replaced struct {
	at   *yaml.Node
	name string
}

// The names of all fields. A field in the wrong place gets a warning, since envoyproxy/ratelimit ignores it. An
// unknown field is a mistake.
const (
	inFile       = "domain descriptors"
	inDescriptor = "key value rate_limit descriptors shadow_mode quota_mode detailed_metric value_to_metric share_threshold metadata"
	inRateLimit  = "unit requests_per_unit unlimited name replaces " + inTerms
	inReplaces   = "name"
	inNeed       = "above late bytes"

	// A field's name with any other tag is text, as in envoyproxy/ratelimit.
	notText = "!!null !!bool !!int !!float !!timestamp !!binary !!merge"

	inOverlay      = "limits"
	inOverlayEntry = "match " + inTerms
	inTerms        = "algorithm need debt outage lease burst unit_multiplier window"
)

var known = func() map[string]bool {
	all := make(map[string]bool)
	for _, names := range []string{inFile, inDescriptor, inRateLimit} {
		for name := range strings.SplitSeq(names, " ") {
			all[name] = true
		}
	}
	return all
}()

// fields calls read with each field of a mapping that belongs there, and reports the others.
func (p *problems) fields(n *yaml.Node, what, names string, read func(name string, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		p.addf(n, "%s is %s, must be a mapping (NAME: VALUE)", what, kindOf(n))
		return
	}
	// envoyproxy/ratelimit ignores some mistakes in fields that it has itself, so they are only warnings there.
	strict := names == inNeed || names == inOverlay || names == inOverlayEntry
	seen := make(map[string]*yaml.Node)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i]
		switch {
		case name.Kind != yaml.ScalarNode || containsWord(notText, name.ShortTag()):
			p.addf(name, "a field's name is %s, must be text", kindOf(name))
			continue
		case seen[name.Value] == nil || p.merged[seen[name.Value]]:
		case strict:
			p.addf(name, "field %q is set twice", name.Value)
		case p.merged[name]:
			p.warnf(seen[name.Value], "field %q is overridden by the \"<<\" after it; put the \"<<\" first", name.Value)
		default:
			p.warnf(name, "field %q is set twice; the last one counts", name.Value)
		}
		seen[name.Value] = name
		switch belongs := containsWord(names, name.Value); {
		case belongs:
		case known[name.Value] && !strict:
			p.warnf(name, "field %q has no effect in %s", name.Value, what)
		default:
			p.addf(name, "unknown field %q, must be one of %s", name.Value, strings.ReplaceAll(names, " ", ", "))
		}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if seen[name.Value] != name || value.Kind != yaml.ScalarNode || name.Value == "metadata" || names == inNeed {
			continue // as in envoyproxy/ratelimit, a value that is overridden may be a float
		}
		if value.ShortTag() == "!!float" { // a date is text
			p.addf(value, "%s is %s, which YAML reads as a float: write it in quotes", name.Value, shown(value))
		}
	}
	for name := range strings.SplitSeq(names, " ") {
		if value, ok := p.fieldOf(n, name); ok {
			read(name, value)
		}
	}
}

func containsWord(words, word string) bool {
	for w := range strings.SplitSeq(words, " ") {
		if w == word {
			return true
		}
	}
	return false
}

// list returns the elements of a list.
func (p *problems) list(n *yaml.Node, what string) []*yaml.Node {
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		p.addf(n, "%s is %s, must be a list", what, kindOf(n))
		return nil
	}
	return n.Content
}

func (p *problems) root(text []byte) *root {
	n := parse(text, p)
	if n == nil {
		if len(p.found) == 0 {
			p.add(&Problem{Place: Place{p.file, 1, 1}, What: "the file is empty, must have a domain"})
		}
		return nil
	}
	r := &root{at: n}
	p.fields(n, "the file", inFile, func(name string, value *yaml.Node) {
		switch name {
		case "domain":
			r.domain = p.text(value, "domain")
		case "descriptors":
			r.descriptors = p.descriptors(value)
		}
	})
	if n.Kind == yaml.MappingNode && r.domain == "" {
		p.addf(n, "the file has no domain")
	}
	return r
}

func (p *problems) descriptors(n *yaml.Node) []descriptor {
	var all []descriptor
	for _, element := range p.list(n, "descriptors") {
		all = append(all, p.descriptor(element))
	}
	return all
}

func (p *problems) descriptor(n *yaml.Node) descriptor {
	d := descriptor{at: n}
	p.fields(n, "a descriptor", inDescriptor, func(name string, value *yaml.Node) {
		switch name {
		case "key":
			d.key = p.text(value, "key")
		case "value":
			d.value = p.text(value, "value")
		case "rate_limit":
			if !isNull(value) {
				d.limit = p.rateLimit(value)
			}
		case "descriptors":
			d.descriptors = p.descriptors(value)
		case "shadow_mode":
			d.shadow = p.truth(value, name)
		case "quota_mode":
			d.quota = p.truth(value, name)
		case "detailed_metric":
			d.detailedMetric = p.truth(value, name)
		case "value_to_metric":
			d.valueToMetric = p.truth(value, name)
		case "share_threshold":
			d.shareThreshold = p.truth(value, name)
		case "metadata":
			d.metadata = p.metadata(value)
		}
	})
	if n.Kind == yaml.MappingNode && d.key == "" {
		p.addf(n, "a descriptor has no key")
	}
	return d
}

func (p *problems) rateLimit(n *yaml.Node) *rateLimit {
	l := &rateLimit{at: n}
	if n.Kind != yaml.MappingNode {
		p.addf(n, "rate_limit is %s, must be a mapping (NAME: VALUE)", kindOf(n))
		return nil
	}
	p.fields(n, "rate_limit", inRateLimit, func(name string, value *yaml.Node) {
		switch name {
		case "unit":
			l.unit, l.unitAt = p.text(value, "unit"), value
			return
		case "requests_per_unit":
			l.requestsPerUnit = p.number(value, name)
			return
		case "unlimited":
			l.unlimited = p.truth(value, name)
			return
		case "name":
			l.name = p.text(value, "name")
			return
		case "replaces":
			l.replaces = p.replaces(value)
			return
		}
		if l.own == nil {
			l.own = value
		}
		p.ownField(l, name, value)
	})
	p.ownFieldsTogether(l, "rate_limit")
	return l
}

// ownFieldsTogether checks combinations of the fields that only this service has.
func (p *problems) ownFieldsTogether(l *rateLimit, what string) {
	n := l.at
	if l.terms.Burst > 0 && !l.terms.Algorithm.Same(limit.GCRA()) {
		p.addf(n, "burst is set, but only the algorithm gcra has a burst")
	}
	if l.terms.Lease > 0 && !l.terms.Counted {
		p.addf(n, "lease needs an algorithm or a need beside it: without them denied requests are counted, and leases are not possible")
	}
	if l.terms.Debt && !l.terms.Counted {
		p.addf(n, "debt needs an algorithm or a need beside it: without them costs that do not fit are charged in any case")
	}
	if !l.terms.Algorithm.IsAutomatic() && l.terms.Need.Stated() {
		p.addf(n, "%s has both an algorithm and a need, choose one of them", what)
	}
}

// ownField reads a field that only this service has.
func (p *problems) ownField(l *rateLimit, name string, value *yaml.Node) {
	var err error
	switch name {
	case "algorithm":
		l.terms.Counted = true
		l.terms.Algorithm, err = limit.ParseAlgorithm(p.text(value, name))
	case "need":
		l.terms.Counted = true
		l.terms.Need = p.need(value)
	case "debt":
		l.terms.Debt = p.truth(value, name)
	case "outage":
		l.terms.Outage = p.outage(value)
	case "lease":
		if l.terms.Lease = int(p.number(value, name)); l.terms.Lease < 1 || l.terms.Lease > 50 {
			p.addf(value, "lease is %s, must be a percentage of the limit, 1 to 50", shown(value))
		}
	case "burst":
		if l.terms.Burst = int64(p.number(value, name)); l.terms.Burst == 0 {
			p.addf(value, "burst is %s, must be at least 1", shown(value))
		}
	case "unit_multiplier":
		if l.multiplier = p.number(value, name); l.multiplier == 0 {
			p.addf(value, "unit_multiplier is %s, must be at least 1", shown(value))
		}
	case "window":
		l.windowAt = value
		l.window, err = time.ParseDuration(p.text(value, name))
		if err != nil {
			err = fmt.Errorf("window is %s, must be a duration like 90s, 15m or 36h", shown(value))
			l.window = time.Second // the mistake has been reported
		}
	}
	if err != nil {
		p.wrap(value, err)
	}
}

func (p *problems) outage(n *yaml.Node) tiered.OutagePolicy {
	for _, policy := range []tiered.OutagePolicy{tiered.Approximate, tiered.Allow, tiered.Deny} {
		if n.Value == policy.String() {
			return policy
		}
	}
	p.addf(n, "outage is %s, must be approximate, allow or deny", shown(n))
	return tiered.Approximate
}

func (p *problems) need(n *yaml.Node) plan.Need {
	var need plan.Need
	part := func(value *yaml.Node, name string) plan.Tolerance {
		var part float64
		if err := value.Decode(&part); err != nil {
			p.addf(value, "%s is %s, must be a fraction like 0 or 0.1", name, shown(value))
		}
		return plan.AtMost(part)
	}
	p.fields(n, "need", inNeed, func(name string, value *yaml.Node) {
		switch name {
		case "above":
			need.Above = part(value, name)
		case "late":
			need.Late = part(value, name)
		case "bytes":
			need.Bytes = int64(p.number(value, name))
		}
	})
	if err := need.Validate(); err != nil {
		p.wrap(n, err)
	}
	return need
}

func (p *problems) replaces(n *yaml.Node) []replaced {
	var all []replaced
	for _, element := range p.list(n, "replaces") {
		r := replaced{at: element}
		p.fields(element, "replaces", inReplaces, func(_ string, value *yaml.Node) { r.name = p.text(value, "name") })
		if element.Kind == yaml.MappingNode && r.name == "" {
			p.addf(element, "an entry of replaces has no name")
		}
		all = append(all, r)
	}
	return all
}
