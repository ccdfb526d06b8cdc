# SPDX-License-Identifier: Apache-2.0
# A program of the kind that people have: a hash that lies in files. It prints what it finds, in an
# order that does not depend on the library.
use strict;
use warnings;
use Fcntl;
use NDBM_File;

sub show {
    my ($h) = @_;
    print join(' ', map { "$_=$$h{$_}" } sort keys %$h), "\n";
}

umask 022;
my %h;
my $db = tie %h, 'NDBM_File', 'proof', O_RDWR | O_CREAT, 0644 or die $!;
printf "%04o\n", (stat 'proof.pag')[2] & 07777;
$h{$_} = $_ ** 2 for 1 .. 20;
show \%h;
$h{7} = 'seven';
delete $h{8};
print defined $h{8} ? 'there' : 'gone', "\n";
print defined $h{nothing} ? 'there' : 'gone', "\n";
$h{''} = 'the empty key';
$h{empty} = '';
show \%h;

# Each, with a fetch between. gdbm's walk misses keys when one is deleted in its midst.
my $sum = 0;
my @out;
while (my ($k, $v) = each %h) {
    $sum += length($h{$k});
    push @out, $k if $k =~ /^1/;
}
print "$sum\n";
delete @h{@out};
show \%h;

# Filters.
$db->filter_store_value(sub { $_ = uc });
$db->filter_store_key(sub { $_ = "<$_>" });
$h{filtered} = 'loud';
$db->filter_store_key(undef);
$db->filter_store_value(undef);
show \%h;
undef $db;

# A child of a fork that ends, with all that is done at its end.
my $child = fork // die $!;
exit 0 if $child == 0;
waitpid $child, 0;
$h{after} = 'the fork';
untie %h;

tie %h, 'NDBM_File', 'proof', O_RDONLY, 0644 or die $!;
show \%h;
eval { $h{new} = 1 };
print $@ ? 'refused' : 'taken', "\n";
untie %h;

# Emptied, and filled again.
tie %h, 'NDBM_File', 'proof', O_RDWR, 0644 or die $!;
%h = ();
print scalar(keys %h), "\n";
$h{$_} = 'x' x ($_ % 500) for 1 .. 2000;
print scalar(keys %h), "\n";
untie %h;
tie %h, 'NDBM_File', 'proof', O_RDWR, 0644 or die $!;
print length($h{1234}), "\n";
untie %h;
print tie(%h, 'NDBM_File', 'absent', O_RDWR, 0644) ? 'made' : 'absent: ' . ($!{ENOENT} ? 'ENOENT' : $!), "\n";
print "done\n";
