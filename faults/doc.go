// Package faults holds tests of the limiter as a user runs it, under what goes wrong
// around it: many processes at once, networks that lose and delay, Clusters that are
// resharded and fail over. It is a module of its own so that what it tests with stays
// out of the library's dependencies. Its tests need a Unix.
package faults
