package config

import (
	"strings"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// Match is the result of finding a descriptor's limit.
type Match struct {
	Limit *Limit // nil: none
	// Values has, for each entry whose values share one count, the text that replaces the value in the key. An
	// element is "" if the entry's own value is used, and Values is nil if this is true for all entries.
	Values []string
	// StatName is the name of the statistics. It is the limit's own name, unless the name contains values of
	// requests. Then Dynamic is true, and the number of names is unbounded.
	StatName string
	Dynamic  bool
}

// HasDomain reports whether a domain is configured.
func (c *Config) HasDomain(domain string) bool { return c.domains[domain] != nil }

// Match finds the limit for a descriptor's entries. At each level it takes the child named key_value, or otherwise
// the child of the first pattern that key_value matches, or otherwise the child named key. The limit must be at the
// level of the last entry.
func (c *Config) Match(domain string, entries []*commonv3.RateLimitDescriptor_Entry) (m Match) {
	at := c.domains[domain]
	if at == nil {
		return m
	}
	var joined [128]byte
	telling := false // the name contains values
	for i, entry := range entries {
		name := append(append(append(joined[:0], entry.GetKey()...), '_'), entry.GetValue()...)
		next := at.children[string(name)]
		if next == nil {
			if next = at.matched(name); next == nil {
				if next = at.children[entry.GetKey()]; next == nil {
					return Match{}
				}
				telling = telling || next.valued
			} else {
				// If the key itself matches a "*", the name contains the key.
				telling = telling || !isOfKey(next.patterned, entry.GetKey())
				if next.shared == "" {
					telling = telling || next.valued
				} else {
					if m.Values == nil {
						m.Values = make([]string, len(entries))
					}
					m.Values[i] = strings.TrimPrefix(next.shared, entry.GetKey()+"_")
				}
			}
		} else if entry.GetValue() == "" {
			telling = true // as in envoyproxy/ratelimit, the name lacks the "_" at which key_value ends
		}
		at = next
	}
	if at.limit == nil {
		return Match{}
	}
	m.Limit = at.limit
	switch {
	case at.detailed:
		m.StatName, m.Dynamic = detailedName(domain, entries, m.Values), true
	case telling:
		m.StatName, m.Dynamic = c.valuedName(domain, entries), true
	default:
		m.StatName = at.limit.StatName
	}
	return m
}

// isOfKey reports whether name, a key_value, has this key.
func isOfKey(name, key string) bool {
	value, ok := strings.CutPrefix(name, key)
	return ok && strings.HasPrefix(value, "_")
}

// matched returns the node of the first pattern that name matches, or nil if there is none.
func (n *node) matched(name []byte) *node {
	if len(n.patterns) == 0 {
		return nil
	}
	text := string(name)
	for i := range n.patterns {
		if n.patterns[i].matches(text) {
			return n.patterns[i].node
		}
	}
	return nil
}

// matches reports whether text equals the pattern with any text in place of each "*".
func (p *pattern) matches(text string) bool {
	first, last := p.parts[0], p.parts[len(p.parts)-1]
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	rest := text[len(first) : len(text)-len(last)]
	for _, part := range p.parts[1 : len(p.parts)-1] {
		_, behind, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = behind
	}
	return true
}

// detailedName contains all values, except that values with a shared count appear as their pattern.
func detailedName(domain string, entries []*commonv3.RateLimitDescriptor_Entry, shared []string) string {
	var b strings.Builder
	b.WriteString(domain)
	for i, entry := range entries {
		b.WriteString("." + entry.GetKey())
		switch {
		case shared == nil:
			b.WriteString("_" + entry.GetValue())
		case shared[i] != "":
			b.WriteString("_" + shared[i])
		case entry.GetValue() != "":
			b.WriteString("_" + entry.GetValue())
		}
	}
	return b.String()
}

// valuedName contains the values of descriptors with value_to_metric, and all others as they are configured.
func (c *Config) valuedName(domain string, entries []*commonv3.RateLimitDescriptor_Entry) string {
	var b strings.Builder
	b.WriteString(domain)
	at := c.domains[domain]
	for _, entry := range entries {
		key, value := entry.GetKey(), entry.GetValue()
		next := at.children[key+"_"+value]
		if next == nil {
			if next = at.matched([]byte(key + "_" + value)); next != nil {
				if next.shared != "" || !next.valued {
					value = strings.TrimPrefix(next.patterned, key+"_")
				}
			} else if next = at.children[key]; !next.valued {
				value = ""
			}
		}
		b.WriteString("." + key)
		if value != "" {
			b.WriteString("_" + value)
		}
		at = next
	}
	return b.String()
}
