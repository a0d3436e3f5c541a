package remote

import "strings"

// leaseKey is where it is kept what is out on lease of a key. No rule's name has a colon.
func leaseKey(redisKey string) string { return redisKey + ":lease" }

// holdsKey is where it is kept what is held of a key. No rule's name has a colon.
func holdsKey(redisKey string) string { return redisKey + ":holds" }

// Related are the keys beside a rule's key that say more of it, for code that only reads them.
type Related struct {
	Lease string
	// Holds has what is held for costs that are known afterwards, Slots what processes hold of a
	// limit of limit.Concurrent.
	Holds, Slots string
	// Marker is where it is kept which of an instance's charges were made.
	Marker func(instance string) string
	// Fleet is a sorted set of the instances that share the limits, on one node. (On a Cluster
	// each master has one of its own.)
	Fleet string
}

// Related returns the keys beside a Redis key of the keyspace.
func (k Keyspace) Related(redisKey string) Related {
	return Related{
		Lease:  leaseKey(redisKey),
		Holds:  holdsKey(redisKey),
		Slots:  redisKey + slotsSuffix,
		Marker: func(instance string) string { return markerKey(redisKey, instance) },
		Fleet:  k.fleetKey(),
	}
}

// PatternOf matches all keys of a rule, for SCAN. It may match others: see [Keyspace.UserKeyOf].
func (k Keyspace) PatternOf(rule string) string { return k.prefix + ":{*}:" + rule + "*" }

// UserKeyOf is the user key that a Redis key of a rule was made of, with or without hash tags, be it
// of a rate or of what is held at the same time; false if it is no key of that rule.
func (k Keyspace) UserKeyOf(redisKey, rule string) (UserKey, bool) {
	inner, ok := strings.CutPrefix(redisKey, k.prefix+":{")
	if !ok {
		return "", false
	}
	inner, ok = strings.CutSuffix(strings.TrimSuffix(inner, slotsSuffix), "}:"+rule)
	if tag, user, tagged := strings.Cut(inner, "}{"); tagged && strings.HasPrefix(tag, "%") {
		inner = user
	}
	if strings.ContainsAny(inner, "{}") {
		return "", false
	}
	return UserKey(inner), ok
}

var keyUnescaper = strings.NewReplacer("%25", "%", "%7B", "{", "%7D", "}")

// Said is the key as it was said; false if only its hash is known, which is returned instead.
func (u UserKey) Said() (string, bool) {
	if strings.HasPrefix(string(u), hashedKey) {
		return string(u), false
	}
	return keyUnescaper.Replace(string(u)), true
}
