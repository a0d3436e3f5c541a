// Package lease has units of keys charged in Redis in advance, to be spent by this process without
// a trip, and gives back what is not used. The units themselves are in [local.Leases]; this is who
// asks for them, on the terms of a rule ([Terms]), and when.
package lease
