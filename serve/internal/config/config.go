package config

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tierlimit/tierlimit/tiered"
)

// File is the text of a file, and its name for messages.
type File struct {
	Name string
	Text []byte
}

// Config is the configuration from all files. It is immutable, except for the Rule of each [Limit], and safe for
// concurrent use.
type Config struct {
	// Warnings are one line for each thing that is accepted but has no effect.
	Warnings []string

	domains map[string]*node
	limits  []*Limit
}

// node is a descriptor, or a domain.
type node struct {
	children  map[string]*node // by key, or key_value
	patterns  []pattern        // of the children with a "*", in the file's order
	limit     *Limit           // nil: none
	detailed  bool
	valued    bool   // value_to_metric
	shared    string // the pattern whose values share a count; "": each has its own
	patterned string // key_value, if it contains a "*"
}

// pattern is a key_value that contains "*", cut at each "*".
type pattern struct {
	parts []string
	node  *node
}

// Load reads all files. Each domain may occur once, unless mergeDomains is true. The overlay's settings are merged
// into the limits; a nil overlay has none. The error wraps [ErrInvalid] and lists up to twenty mistakes, each with
// its place. If ctx ends before all files are read, Load returns ctx's error.
func Load(ctx context.Context, files []File, mergeDomains bool, overlay *Overlay) (*Config, error) {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	c := &Config{domains: make(map[string]*node)}
	p := &problems{}
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p.file = f.Name
		r := p.root(f.Text)
		if r == nil || r.domain == "" {
			continue
		}
		domain := c.domains[r.domain]
		switch {
		case domain == nil:
			domain = newNode()
			c.domains[r.domain] = domain
		case !mergeDomains:
			p.addf(r.at, "domain %q is also in another file (set MERGE_DOMAIN_CONFIG=true to merge them)", r.domain)
			continue
		}
		c.add(domain, r.descriptors, r.domain, overlay, p)
	}
	c.Warnings = append(p.warnings, overlay.unused(c.limits)...)
	if c.IsEmpty() { // as of an empty directory or ConfigMap, which is no mistake in envoyproxy/ratelimit
		c.Warnings = append(c.Warnings, "there is no domain: all requests are allowed")
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	return c, nil
}

func newNode() *node { return &node{children: make(map[string]*node)} }

// add adds descriptors to a node.
func (c *Config) add(to *node, descriptors []descriptor, path string, overlay *Overlay, p *problems) {
	for i := range descriptors {
		d := &descriptors[i]
		if d.key == "" {
			continue // the mistake has been reported
		}
		name := d.key
		if d.value != "" {
			name += "_" + d.value
		}
		own := path + "." + name
		if to.children[name] != nil {
			p.addf(d.at, "descriptor %q is defined twice", own)
			continue
		}
		child := newNode()
		child.detailed, child.valued = d.detailedMetric, d.valueToMetric
		if strings.Contains(name, "*") {
			child.patterned = name
			to.patterns = append(to.patterns, pattern{strings.Split(name, "*"), child})
		}
		if d.shareThreshold {
			if child.shared = child.patterned; child.shared == "" {
				p.addf(d.at, "share_threshold is set on %q, must be on a descriptor with a * in its value", name)
			}
		}
		if d.limit != nil {
			overlay.merge(d.limit, own)
			child.limit = p.limit(d, own)
			c.limits = append(c.limits, child.limit)
		} else if d.shadow || d.quota {
			p.warnf(d.at, "shadow_mode and quota_mode have no effect on %q, which has no rate_limit", own)
		}
		to.children[name] = child
		c.add(child, d.descriptors, own, overlay, p)
	}
}

// Limits returns all limits, in the order of the files.
func (c *Config) Limits() []*Limit { return c.limits }

// IsEmpty reports whether the configuration has no domain.
func (c *Config) IsEmpty() bool { return len(c.domains) == 0 }

// Dump writes a line for each limit. It buffers only one line: with many thousands of limits, whole dumps for several
// clients that do not read would take much memory.
func (c *Config) Dump(w io.Writer) error {
	var line bytes.Buffer
	for _, l := range c.limits {
		line.Reset()
		l.dump(&line)
		if _, err := w.Write(line.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

func (l *Limit) dump(line *bytes.Buffer) {
	fmt.Fprintf(line, "%s: unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t",
		l.StatName, l.Current.GetUnit(), l.Current.GetRequestsPerUnit(), l.Shadow, l.Quota)
	if l.Unlimited {
		line.WriteString(", unlimited: true")
	}
	if l.Rule != nil && l.Terms.Counted {
		fmt.Fprintf(line, ", window: %v, algorithm: %v", l.Window, l.Rule.Algorithm())
		if l.Terms.Debt {
			line.WriteString(", debt: true")
		}
		fmt.Fprintf(line, ", outage: %v", l.Rule.OutagePolicy())
	} else {
		if l.Window != WindowOf(l.Current.GetUnit(), 1) {
			fmt.Fprintf(line, ", window: %v", l.Window)
		}
		if l.Terms.Outage != tiered.Approximate {
			fmt.Fprintf(line, ", outage: %v", l.Terms.Outage)
		}
	}
	if l.Overlay != (Place{}) {
		fmt.Fprintf(line, ", overlay: %v", l.Overlay)
	}
	line.WriteByte('\n')
}
