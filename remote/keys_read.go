package remote

import "strings"

// Related has the keys beside a rule's key that hold more about it, for code that only reads them.
type Related struct {
	Lease string
	// Holds has the open holds, for costs that are known only afterwards. Slots has the units of a limit of
	// limit.Concurrent that processes hold.
	Holds, Slots string
	// Marker returns the key with the number of an instance's last charge.
	Marker func(instance string) string
	// Fleet is a sorted set of the instances that share the limits, on a single node. (On a Cluster each master
	// has its own set.)
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

// PatternOf returns a pattern that matches all keys of a rule, for SCAN. It may match others: see
// [Keyspace.UserKeyOf].
func (k Keyspace) PatternOf(rule string) string { return k.prefix + ":{*}:" + rule + "*" }

// UserKeyOf returns the user key that a Redis key of a rule was made from. The Redis key may have hash tags or
// not, and may be that of a rate limit or of a concurrency limit. UserKeyOf returns false if it is no key of
// that rule.
func (k Keyspace) UserKeyOf(redisKey, rule string) (UserKey, bool) {
	inner, ok := strings.CutPrefix(redisKey, k.prefix+":{")
	if !ok {
		return "", false
	}
	end := "}:" + rule
	if !strings.HasSuffix(inner, end) { // a rule may also be named "slots"
		end += slotsSuffix
	}
	inner, ok = strings.CutSuffix(inner, end)
	if tag, user, tagged := strings.Cut(inner, "}{"); tagged && strings.HasPrefix(tag, "%") {
		inner = user
	}
	if strings.ContainsAny(inner, "{}") {
		return "", false
	}
	return UserKey(inner), ok
}

var keyUnescaper = strings.NewReplacer("%25", "%", "%7B", "{", "%7D", "}")

// Original returns the key as the caller gave it. If only the key's hash is known, it returns the hash and false.
func (u UserKey) Original() (string, bool) {
	if strings.HasPrefix(string(u), hashedKey) {
		return string(u), false
	}
	return keyUnescaper.Replace(string(u)), true
}
