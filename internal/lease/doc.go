// Package lease charges units of keys in Redis in advance, so that this process can spend them
// without a trip, and gives back those that are not used. The units themselves are in
// [local.Leases]; this package requests them, on the terms of a rule ([Terms]).
package lease
