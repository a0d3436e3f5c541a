// Package lease charges units of keys in Redis in advance, so that this process can spend them without a
// trip, and gives back the unused ones. The units themselves are in [local.Leases]; this package requests
// them, on the terms of a rule ([Terms]).
package lease
