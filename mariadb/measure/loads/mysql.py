"""sysbench's oltp_* loads on MySQL in a server of its own: for orientation, no goal compares with it."""

from .. import sizes
from ..server import MysqlServer
from ..engines import mysql_options
from . import oltp


class Stage(oltp.Stage):
    server_class = MysqlServer

    def options(self, mode):
        return mysql_options(sizes.POOL, level=2 if mode == "level-2" else 1, binlog=self.dir / "binlog" if mode == "binlog" else None)

    def cached(self):
        return {}
