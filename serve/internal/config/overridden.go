package config

import "gopkg.in/yaml.v3"

// overridden reports values of a wrong kind in a field that a later one of the same name overrides. They have no effect,
// but envoyproxy/ratelimit refuses a file that has them. It accepts everything else in such a field: unknown names, a
// descriptor without a key, and a float.
func (p *problems) overridden(name string, value *yaml.Node) {
	switch name {
	case "domain", "key", "value", "unit", "name":
		p.text(value, name)
	case "unlimited", "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold":
		p.truth(value, name)
	case "requests_per_unit":
		if value.Kind != yaml.ScalarNode || value.ShortTag() != "!!float" {
			p.number(value, name)
		}
	case "metadata":
		p.overriddenFields(value, name, "")
	case "rate_limit":
		p.overriddenFields(value, name, inRateLimit)
	case "descriptors":
		p.overriddenList(value, name, inDescriptor)
	case "replaces":
		p.overriddenList(value, name, inReplaces)
	}
}

// overriddenList is overridden for a list of mappings with fields of these names.
func (p *problems) overriddenList(n *yaml.Node, what, names string) {
	for _, element := range p.list(n, what) {
		p.overriddenFields(element, "an entry of "+what, names)
	}
}

// overriddenFields is overridden for each field of a mapping that has one of these names.
func (p *problems) overriddenFields(n *yaml.Node, what, names string) {
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		p.addf(n, "%s is %s, must be a mapping (NAME: VALUE)", what, kindOf(n))
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if name := n.Content[i].Value; containsWord(names, name) {
			p.overridden(name, n.Content[i+1])
		}
	}
}
