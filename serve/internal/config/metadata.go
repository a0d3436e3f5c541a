package config

import (
	"fmt"
	"strconv"

	"google.golang.org/protobuf/types/known/structpb"
	"gopkg.in/yaml.v3"
)

// metadata reads a mapping of arbitrary values.
func (p *problems) metadata(n *yaml.Node) *structpb.Struct {
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		p.addf(n, "metadata is %s, must be a mapping (NAME: VALUE)", kindOf(n))
		return nil
	}
	return p.anything(n, func(name *yaml.Node) string {
		if isNull(name) {
			return "" // as in envoyproxy/ratelimit
		}
		return name.Value
	}).GetStructValue()
}

// innerName returns the name of a field inside a structure of metadata. As in envoyproxy/ratelimit, a name that YAML 1.1
// reads as a boolean, a number or null is the text of that value there, such as "true" for on. At the top level the name
// is what is written.
func innerName(n *yaml.Node) string {
	if truth, ok := truthOf(n); ok {
		return strconv.FormatBool(truth)
	}
	switch n.ShortTag() {
	case "!!int", "!!float", "!!null":
		var value any
		if n.Decode(&value) == nil {
			return fmt.Sprint(value)
		}
	}
	return n.Value
}

// anything reads a value of metadata as YAML 1.1: yes and off are booleans, and a date is text. If it is a structure,
// nameOf returns the names of its fields.
func (p *problems) anything(n *yaml.Node, nameOf func(*yaml.Node) string) *structpb.Value {
	switch n.Kind {
	case yaml.MappingNode:
		fields := make(map[string]*structpb.Value)
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := n.Content[i]
			if name.Kind != yaml.ScalarNode {
				p.addf(name, "a field's name in metadata is %s, must be text", kindOf(name))
				continue
			}
			fields[nameOf(name)] = p.anything(n.Content[i+1], innerName)
		}
		return structpb.NewStructValue(&structpb.Struct{Fields: fields})
	case yaml.SequenceNode:
		list := &structpb.ListValue{}
		for _, element := range n.Content {
			list.Values = append(list.Values, p.anything(element, innerName))
		}
		return structpb.NewListValue(list)
	}
	if n.ShortTag() == "!!timestamp" {
		return structpb.NewStringValue(n.Value)
	}
	if truth, ok := truthOf(n); ok {
		return structpb.NewBoolValue(truth)
	}
	var value any
	if err := n.Decode(&value); err != nil {
		p.addf(n, "%s in metadata cannot be read", shown(n))
		return nil
	}
	converted, err := structpb.NewValue(value)
	if err != nil {
		p.addf(n, "%s in metadata is neither text, number nor boolean: write it in quotes", shown(n))
		return nil
	}
	return converted
}
